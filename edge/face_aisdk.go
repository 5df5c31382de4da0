package edge

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect/aisdk"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

func (s *Server) aisdkRoutes() []route {
	return []route{
		{"POST /api/chat", s.aisdkChat, false},
		{"GET /api/chat/{chat}/stream", s.aisdkResume, false},
	}
}

// aisdkChat takes what the AI SDK's chats send: a chat is a session, and an
// assistant's message is a run, whose id it has. If the last message is an
// assistant's, it brings what the run waits for.
func (s *Server) aisdkChat(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.maxHistory())
	if err != nil {
		return err
	}
	in, err := readAISDK(body)
	if err != nil {
		return err
	}
	if agent := r.URL.Query().Get("agent"); in.Agent == "" {
		in.Agent = agent
	}
	fold := event.NewSession(in.ID)
	if in.ID != "" {
		if fold, err = s.load(r.Context(), eventlog.Key{Tenant: c.who.Tenant, Session: in.ID}); err != nil {
			return err
		}
	}
	if in.last().Role == "assistant" {
		return s.aisdkContinue(w, r, c, in, fold)
	}
	return s.aisdkSubmit(w, r, c, in, fold)
}

// aisdkSubmit starts a run for the last message. The same message again is the
// same run, as long as that is under way or did well: a client's own way to try
// again is to send it again.
func (s *Server) aisdkSubmit(w http.ResponseWriter, r *http.Request, c *call, in *aisdkInput, fold *event.Session) error {
	ctx := r.Context()
	messages, err := s.aisdkMessages(ctx, c, in, fold)
	if err != nil {
		return err
	}
	id, try, err := s.aisdkRunID(ctx, c, in, fold, messages[len(messages)-1])
	if err != nil {
		return err
	}
	last := &messages[len(messages)-1]
	if held := fold.MessageByID(last.MessageID); held != nil && (try > 0 || !same(held, *last)) {
		last.MessageID = derivedID("msg", last.MessageID, last.text, strconv.Itoa(try))
	}
	req := runRequest{Agent: in.Agent, SessionID: in.ID, RunID: id, Config: clientTools(in.Tools), Queue: inPlaceOfAnAnswer(fold, in.Queue)}
	sub, err := submissionOf(r, c, req, messages, bodyHash("aisdk", []byte(in.ID+"\n"+last.text)))
	if err != nil {
		return err
	}
	n, _, err := s.reserveNamed(ctx, sub)
	if err != nil {
		return err
	}
	return s.aisdkStream(w, r, c, n)
}

// maxTries bounds how often one message starts a run.
const maxTries = 100

// aisdkRunID finds the run that the last message starts: the try-th.
func (s *Server) aisdkRunID(ctx context.Context, c *call, in *aisdkInput, fold *event.Session, last inputMessage) (id string, try int, err error) {
	if in.ID == "" {
		return event.NewID("run"), 0, nil
	}
	for ; try < maxTries; try++ {
		id = derivedID("run", in.ID, last.MessageID, last.text, strconv.Itoa(try))
		known := fold.Run(id)
		if known == nil {
			_, err := s.Log.FindRun(ctx, c.who.Tenant, id)
			if errors.Is(err, eventlog.ErrNotFound) {
				err = nil
			}
			return id, try, err // new, or on its way
		}
		if !known.Status.Terminal() || known.Status == event.Completed && in.Trigger != "regenerate-message" {
			return id, try, nil
		}
	}
	return "", 0, problem(http.StatusConflict, event.CodeConflict, "this message has started %d runs; send a new one", maxTries)
}

// aisdkContinue gives a parked run what it waits for, and streams what follows.
func (s *Server) aisdkContinue(w http.ResponseWriter, r *http.Request, c *call, in *aisdkInput, fold *event.Session) error {
	id := derivedID("run", in.ID, "continue", in.last().answersText())
	n, err := s.continueNamed(r.Context(), c, fold, id, "aisdk", func() ([]event.Command, error) { return in.last().answers(fold) })
	if err != nil {
		return err
	}
	return s.aisdkStream(w, r, c, n)
}

// justEnded is how long after its end a run is still told to chats that come back:
// one that lost its connection and missed the end has no other way to ask for it.
const justEnded = 5 * time.Minute

// aisdkResume tells all of the run under way, of the next one, or of one that has
// just ended. 204 if there is none.
func (s *Server) aisdkResume(w http.ResponseWriter, r *http.Request, c *call) error {
	k := eventlog.Key{Tenant: c.who.Tenant, Session: r.PathValue("chat")}
	if event.CheckID("chat id", k.Session) != nil || !c.who.Reaches(k.Session, "") {
		return notFound("chat", k.Session)
	}
	id, err := s.underWay(r.Context(), k)
	if err != nil {
		return err
	}
	if id == "" {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	p, err := s.findRun(r.Context(), c, id)
	if err != nil {
		return err
	}
	return s.aisdkStream(w, r, c, there(p))
}

// underWay is the run that a session is busy with, or will be next, or was until
// a moment ago.
func (s *Server) underWay(ctx context.Context, k eventlog.Key) (string, error) {
	waiting, err := s.Log.Inbox(ctx, k) // first: a command may turn into events meanwhile
	if err != nil {
		return "", err
	}
	fold, err := s.load(ctx, k)
	if err != nil {
		return "", err
	}
	if run := fold.Active(); run != nil {
		return run.RunID, nil
	}
	if len(fold.Book.Queue) > 0 {
		return fold.Book.Queue[0].RunID, nil
	}
	for _, cmd := range waiting {
		if r := fold.Run(cmd.RunID); cmd.Kind == event.Invoke && (r == nil || !r.Status.Terminal()) {
			return cmd.RunID, nil
		}
	}
	return lastEnded(fold, time.Now().Add(-justEnded)), nil
}

// lastEnded is the last run of a client's, if it ended after a time.
func lastEnded(fold *event.Session, since time.Time) string {
	for i := len(fold.Runs) - 1; i >= 0; i-- {
		if r := fold.Runs[i]; r.ParentRunID == "" && r.StartedAt != nil {
			if r.EndedAt != nil && r.EndedAt.After(since) {
				return r.RunID
			}
			return ""
		}
	}
	return ""
}

// aisdkStream streams a run from its start; what its client has of an earlier
// stream is left out.
func (s *Server) aisdkStream(w http.ResponseWriter, r *http.Request, c *call, n *namedRun) error {
	req := stream.Request{Transport: stream.SSE{}, Dialect: aisdk.Dialect{Run: n.place.runID, From: n.from()},
		Ends: s.idles(r.Context(), n.place, n.from())}
	n.header = http.Header{"X-Vercel-Ai-Ui-Message-Stream": {"v1"}}
	return s.startStream(w, r, c, n, req)
}

// aisdkMessages are the messages that the session does not hold; the last one is
// always among them. What assistants said is taken only if the conversation began
// elsewhere.
func (s *Server) aisdkMessages(ctx context.Context, c *call, in *aisdkInput, fold *event.Session) ([]inputMessage, error) {
	var list []inputMessage
	for i := range in.Messages {
		m := &in.Messages[i]
		last := i == len(in.Messages)-1
		held := m.ID != "" && fold.MessageByID(m.ID) != nil
		if held && !last || m.Role != "user" && len(fold.Messages) > 0 {
			continue
		}
		next, err := s.aisdkMessage(ctx, c, m)
		if err != nil {
			return nil, err
		}
		if last && len(next.Parts) == 0 {
			return nil, bad(m.at, "%s is empty", m.at)
		}
		if len(next.Parts)+len(next.Calls) > 0 {
			list = append(list, next)
		}
	}
	if len(list) > maxMessages {
		return nil, bad("messages", "%d new messages, at most %d are taken at once", len(list), maxMessages)
	}
	return list, nil
}

func (s *Server) aisdkMessage(ctx context.Context, c *call, m *aisdkMessage) (inputMessage, error) {
	next, err := beginInput(m.at, m.Role, m.ID)
	if err != nil {
		return next, err
	}
	for i, p := range m.Parts {
		switch {
		case p.Type == "text" && p.Text != "":
			next.Parts = append(next.Parts, event.TextPart(p.Text))
		case p.Type == "file":
			part, err := s.inlineFile(ctx, c, m.at+".parts["+strconv.Itoa(i)+"]", p.URL, p.MediaType, p.Filename)
			if err != nil {
				return next, err
			}
			next.Parts = append(next.Parts, part)
		case p.tool() && m.Role == "assistant":
			next.Calls = append(next.Calls, p.past())
		}
	}
	next.text = string(event.Encode(next.Parts))
	return next, nil
}
