package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/openai"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// completionsInput is the body of POST /v1/chat/completions, and session_id for
// who wants to go on with a session instead of sending all of it.
type completionsInput struct {
	Model     string              `json:"model"` // the agent
	SessionID string              `json:"session_id"`
	Messages  []completionMessage `json:"messages"`
	Stream    bool                `json:"stream"`
	Options   struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools []struct {
		Type     string           `json:"type"`
		Function event.ClientTool `json:"function"`
	} `json:"tools"`
	N int `json:"n"`
}

type completionMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Calls   json.RawMessage `json:"tool_calls"`
	CallID  string          `json:"tool_call_id"`
}

// createCompletion runs an agent on a conversation. Results of the client's tools
// go to the run that waits for them, which their ids name.
func (s *Server) createCompletion(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.maxHistory())
	if err != nil {
		return err
	}
	in := &completionsInput{}
	if err := decodeOpen(body, in); err != nil {
		return err
	}
	switch {
	case len(in.Messages) == 0 || len(in.Messages) > maxMessages:
		return bad("messages", "messages is a list of 1 to %d messages", maxMessages)
	case in.N > 1:
		return unsupported("n", "n: a run has one answer; start %d runs instead", in.N)
	}
	n, existed, err := s.acceptCompletion(r, c, in, body)
	if err != nil {
		return err
	}
	d := openai.Chat{Run: n.place.runID, ID: n.ref.RunID, Usage: in.Options.Usage, From: n.from(), Whole: !in.Stream}
	made := openai.NewCompletion(d)
	req := stream.Request{Transport: stream.SSE{}, Dialect: dialect.With(d, made), Ends: func(event.Event) bool { return made.Over() }}
	if in.Stream {
		req.Snapshot = existed // what stands, and then the rest: what was taken back meanwhile the client never sees
		return s.startStream(w, r, c, n, req)
	}
	return s.completionAnswer(w, r, c, n, req, made)
}

// acceptCompletion makes the entry of what a request wants. existed: the run was
// asked for before, by the same request.
func (s *Server) acceptCompletion(r *http.Request, c *call, in *completionsInput, body []byte) (n *namedRun, existed bool, err error) {
	ctx := r.Context()
	if n, err := s.continueCompletion(ctx, c, in); err != nil || n != nil {
		return n, false, err
	}
	messages, err := s.completionMessages(ctx, c, in)
	if err != nil {
		return nil, false, err
	}
	if in.SessionID != "" {
		if err := event.CheckID("session_id", in.SessionID); err != nil {
			return nil, false, bad("session_id", "%s", err)
		}
	}
	fold, err := s.threadFold(ctx, c, in.SessionID)
	if err != nil {
		return nil, false, err
	}
	tools := []event.ClientTool{}
	for _, t := range in.Tools {
		tools = append(tools, t.Function)
	}
	req := runRequest{RunID: event.NewID("chatcmpl"), Agent: in.Model, SessionID: in.SessionID, Config: clientTools(tools),
		Queue: inPlaceOfAnAnswer(fold, "")}
	sub, err := submissionOf(r, c, req, messages, bodyHash(r.URL.Path, body))
	if err != nil {
		return nil, false, err
	}
	return s.reserveNamed(ctx, sub)
}

// continueCompletion gives a parked run the results that a conversation ends
// with; nil if there is no such run: the conversation is a new one.
func (s *Server) continueCompletion(ctx context.Context, c *call, in *completionsInput) (*namedRun, error) {
	var results []completionMessage
	for n := len(in.Messages) - 1; n >= 0 && in.Messages[n].Role == "tool"; n-- {
		results = append(results, in.Messages[n])
	}
	if len(results) == 0 {
		return nil, nil
	}
	_, runID := openai.CutCallID(results[0].CallID)
	if runID == "" {
		return nil, nil
	}
	p, err := s.findRun(ctx, c, runID)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	id := derivedID("chatcmpl", p.runID, string(event.Encode(results)))
	ref, err := s.Log.FindRun(ctx, c.who.Tenant, id)
	if err == nil && ref.Accepted {
		return &namedRun{ref: ref, place: p, start: placed}, nil
	}
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return nil, err
	}
	_, fold, err := s.state(ctx, p)
	if err != nil || fold == nil || fold.Parked() == nil || fold.Parked().RunID != p.runID {
		return nil, err
	}
	answers, err := completionAnswers(fold, results)
	if err != nil {
		return nil, err
	}
	ref, start, err := s.continues(ctx, c, fold, id, bodyHash("completions", []byte(id)), answers)
	return &namedRun{ref: ref, place: p, start: start}, err
}

func completionAnswers(fold *event.Session, results []completionMessage) ([]event.Command, error) {
	run := fold.Parked()
	var list []event.Command
	given := map[string]bool{}
	for _, m := range results {
		id, of := openai.CutCallID(m.CallID)
		t := fold.Call(id)
		if t == nil || of != "" && of != run.RunID || t.RunID != run.RunID || t.Executor != event.ByClient || t.Done() || given[id] {
			continue
		}
		content, err := readContent("messages", map[string]json.RawMessage{"content": m.Content})
		if err != nil {
			return nil, err
		}
		given[id] = true
		list = append(list, resultOf(id, orText(content.parts), nil, false))
	}
	return list, unanswered(fold, run, given)
}

// completionMessages is the conversation; of a session that holds its beginning
// only the rest is new.
func (s *Server) completionMessages(ctx context.Context, c *call, in *completionsInput) ([]inputMessage, error) {
	var list []inputMessage
	for n, m := range in.Messages {
		at := fmt.Sprintf("messages[%d]", n)
		parts, err := s.openaiContent(ctx, c, at, m.Content)
		if err != nil {
			return nil, err
		}
		if m.Role == "tool" {
			if err := answerMade(at, list, pastResult{m.CallID, orText(parts)}); err != nil {
				return nil, err
			}
			continue
		}
		next := inputMessage{InputMessage: event.InputMessage{Parts: parts}}
		if next.Role, err = readRole(at, m.Role); err != nil {
			return nil, err
		}
		if next.Calls, err = readCalls(at, m.Calls); err != nil {
			return nil, err
		}
		if len(next.Parts)+len(next.Calls) == 0 {
			return nil, bad(at+".content", "%s is empty", at)
		}
		list = append(list, next)
	}
	for i := range list {
		list[i].text = string(event.Encode(list[i].Parts))
	}
	return list, nil
}

// completionAnswer waits for the completion and answers with the whole.
func (s *Server) completionAnswer(w http.ResponseWriter, r *http.Request, c *call, n *namedRun, req stream.Request, made *openai.Completion) error {
	if err := s.readThrough(r.Context(), n.place, n.start, req); err != nil {
		return err
	}
	s.nameRun(w, c, n.ref)
	switch why := made.Failed(); {
	case why != nil:
		w.Header().Set("X-Should-Retry", "false") // the run is over
		return problem(http.StatusBadGateway, why.Code, "%s", why.Message)
	case !made.Over():
		w.Header().Set("X-Should-Retry", "false")
		return problem(http.StatusGatewayTimeout, event.CodeUnavailable, "the run goes on: see /v1/runs/%s", n.place.runID)
	}
	writeJSON(w, http.StatusOK, made.JSON())
	return nil
}
