package edge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect/agui"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

func (s *Server) aguiRoutes() []route {
	return []route{{"POST /agui/{agent}", s.agui, false}}
}

// agui takes a run in AG-UI's form and streams it. A thread is a session. The
// same threadId and runId again is the same run: with Last-Event-ID from there,
// without from its start.
func (s *Server) agui(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.maxHistory())
	if err != nil {
		return err
	}
	in, err := readAGUI(body)
	if err != nil {
		return err
	}
	return s.aguiRun(w, r, c, r.PathValue("agent"), in)
}

func (s *Server) aguiRun(w http.ResponseWriter, r *http.Request, c *call, agent string, in *aguiInput) error {
	req, err := s.streamRequest(r, c, agui.Dialect{})
	if err != nil {
		return err
	}
	n, err := s.acceptAGUI(r, c, agent, in)
	if err != nil {
		return err
	}
	if _, ok := req.Dialect.(agui.Dialect); ok {
		req.Dialect = agui.Dialect{Run: n.place.runID, As: n.as(), Old: in.old()}
	}
	req.Ends, req.Empty = parks, true
	return s.startStream(w, r, c, n, req)
}

// acceptAGUI finds the run that a request is about, or makes its entry in the runs
// index.
func (s *Server) acceptAGUI(r *http.Request, c *call, agent string, in *aguiInput) (*namedRun, error) {
	ctx, tenant := r.Context(), c.who.Tenant
	fold := event.NewSession(in.ThreadID)
	if in.ThreadID != "" {
		ref, err := s.knownRun(ctx, tenant, in)
		if err == nil && ref.Accepted {
			return &namedRun{ref: ref, place: placeOf(tenant, ref), start: placed}, nil
		}
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		if fold, err = s.load(ctx, eventlog.Key{Tenant: tenant, Session: in.ThreadID}); err != nil {
			return nil, err
		}
	}
	if run := fold.Run(in.RunID); run != nil { // the index has forgotten it
		return there(placeOf(tenant, refIn(fold, run))), nil
	}
	answers, err := in.answers(fold)
	if err != nil {
		return nil, err
	}
	if len(answers) > 0 {
		return s.aguiContinue(ctx, c, in, fold, answers)
	}
	sub, err := s.aguiSubmission(r, c, agent, in, fold)
	if err != nil {
		return nil, err
	}
	n, _, err := s.reserveNamed(ctx, sub)
	return n, err
}

// knownRun finds the run in the index; the id of a run in another thread is taken.
func (s *Server) knownRun(ctx context.Context, tenant string, in *aguiInput) (eventlog.RunRef, error) {
	if in.RunID == "" {
		return eventlog.RunRef{}, eventlog.ErrNotFound
	}
	ref, err := s.Log.FindRun(ctx, tenant, in.RunID)
	if err == nil && ref.SessionID != in.ThreadID {
		return ref, problem(http.StatusConflict, event.CodeConflict, "the run id %q is that of a run in another thread; send a new runId", in.RunID)
	}
	return ref, err
}

// aguiSubmission is what is to be accepted of a request for a new run: the
// messages that the session does not hold.
func (s *Server) aguiSubmission(r *http.Request, c *call, agent string, in *aguiInput, fold *event.Session) (*submission, error) {
	messages, err := in.unknown(fold)
	if err != nil {
		return nil, err
	}
	if len(messages) == 0 && len(fold.Messages) == 0 {
		return nil, bad("messages", "messages is empty, and so is the thread: send a message")
	}
	config, err := in.config()
	if err != nil {
		return nil, err
	}
	return submissionOf(r, c, runRequest{Agent: agent, SessionID: in.ThreadID, RunID: in.RunID, Config: config}, messages, in.hash())
}

// hash tells requests for one run: who repeats it may have a longer history by
// now.
func (in *aguiInput) hash() string { return bodyHash("agui", []byte(in.ThreadID+"\n"+in.RunID)) }

// aguiContinue gives a parked run what it waits for. For AG-UI that is a new run;
// here its id is another name for the run that goes on.
func (s *Server) aguiContinue(ctx context.Context, c *call, in *aguiInput, fold *event.Session, answers []event.Command) (*namedRun, error) {
	ref, start, err := s.continues(ctx, c, fold, cmp.Or(in.RunID, event.NewID("run")), in.hash(), answers)
	return &namedRun{ref: ref, place: placeOf(c.who.Tenant, ref), start: start}, err
}

// answers are commands for what the thread's run waits for, if the request brings
// any: decisions in resume, results in messages of the role tool.
func (in *aguiInput) answers(fold *event.Session) ([]event.Command, error) {
	run := fold.Parked()
	if run == nil {
		if len(in.Resume) > 0 {
			return nil, nothingWaits("thread")
		}
		return nil, nil
	}
	list, err := in.decisions(fold, run)
	if err != nil {
		return nil, err
	}
	for _, m := range in.Messages {
		if t := fold.Call(m.ToolCallID); m.Role == "tool" && t != nil && t.RunID == run.RunID && t.Executor == event.ByClient && !t.Done() {
			content, err := m.content()
			if err != nil {
				return nil, err
			}
			list = append(list, resultOf(t.CallID, orText(content.parts), nil, m.Error != ""))
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	return in.steered(fold, list)
}

// steered adds what else the client says along with its answers.
func (in *aguiInput) steered(fold *event.Session, list []event.Command) ([]event.Command, error) {
	unknown, err := in.unknown(fold)
	if err != nil {
		return nil, err
	}
	if unknown, err = distinct(unknown); err != nil {
		return nil, err
	}
	var said []event.InputMessage
	for i, m := range unknown {
		if m.Role != event.RoleUser {
			continue
		}
		m.MessageID = cmp.Or(m.MessageID, derivedID("msg", list[0].CommandID, strconv.Itoa(i), m.text))
		said = append(said, m.InputMessage)
	}
	if len(said) > 0 {
		list = slices.Insert(list, 0, event.Command{CommandID: "steer", Kind: event.Steer, Messages: said})
	}
	return list, nil
}

// decisions answers all approvals that the run waits for, or none.
func (in *aguiInput) decisions(fold *event.Session, run *event.Run) ([]event.Command, error) {
	if len(in.Resume) == 0 {
		return nil, nil
	}
	var list []event.Command
	var missing []string
	for _, a := range fold.Approvals {
		if a.RunID != run.RunID {
			continue
		}
		i := slices.IndexFunc(in.Resume, func(r aguiResume) bool { return r.InterruptID == a.CallID })
		if i < 0 {
			missing = append(missing, a.CallID)
			continue
		}
		approved, reason := in.Resume[i].decision()
		list = append(list, decision(fold.Call(a.CallID), approved, reason))
	}
	switch {
	case len(list) < len(in.Resume):
		return nil, problem(http.StatusConflict, event.CodeConflict, "resume answers interrupts that this thread does not wait for")
	case len(missing) > 0:
		return nil, problem(http.StatusConflict, event.CodeConflict, "resume has to answer all interrupts; missing: %s", strings.Join(missing, ", "))
	}
	return list, nil
}

// decision: a resolved interrupt is an approval, unless its payload says that it
// is not.
func (r aguiResume) decision() (approved bool, reason string) {
	var payload struct {
		Approved *bool  `json:"approved"`
		Reason   string `json:"reason"`
	}
	_ = json.Unmarshal(r.Payload, &payload) // any payload approves
	approved = r.Status != "cancelled" && (payload.Approved == nil || *payload.Approved)
	return approved, payload.Reason
}
