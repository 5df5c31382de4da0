package edge

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/plain"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// chatRequest is the body of POST /chat: messages or user_input, and as much of
// a run as somebody wants to say.
type chatRequest struct {
	Messages  json.RawMessage  `json:"messages"`
	UserInput string           `json:"user_input"`
	Agent     string           `json:"agent"`
	SessionID string           `json:"session_id"`
	RunID     string           `json:"run_id"`
	TraceID   string           `json:"trace_id"`
	Stream    bool             `json:"stream"` // as if Accept were text/event-stream
	Config    *event.RunConfig `json:"config"`
}

// run is the same request as POST /v1/runs has it.
func (c *chatRequest) run() (runRequest, error) {
	r := runRequest{Agent: c.Agent, SessionID: c.SessionID, RunID: c.RunID, TraceID: c.TraceID, Config: c.Config}
	given := len(c.Messages) > 0 && string(c.Messages) != "null"
	switch {
	case given && c.UserInput != "":
		return r, bad("user_input", "send either messages or user_input")
	case given:
		var list []struct {
			Role *string `json:"role"`
		}
		if json.Unmarshal(c.Messages, &list) != nil || len(list) == 0 || list[0].Role == nil {
			return r, bad("messages", "messages is a list of {role, content}")
		}
		r.Input = c.Messages
	case c.UserInput != "":
		r.Input = event.Encode(c.UserInput)
	default:
		return r, bad("messages", "send messages, a list of {role, content}, or user_input, a text")
	}
	return r, nil
}

// A chatAnswer is the conversation when the run is over.
type chatAnswer struct {
	SessionID string          `json:"session_id"`
	RunID     string          `json:"run_id"`
	TraceID   string          `json:"trace_id"`
	Status    event.Status    `json:"status"`
	Error     *event.RunError `json:"error,omitempty"`
	Usage     event.Usage     `json:"usage"`
	System    string          `json:"system,omitempty"` // format=anthropic
	Messages  json.RawMessage `json:"messages"`
}

// chat runs an agent on a conversation. As JSON it answers when the run is over;
// as a stream it speaks the plain dialect.
func (s *Server) chat(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBytes(w, r, s.opts.MaxBody)
	if err != nil {
		return err
	}
	var req chatRequest
	if err := decode(body, &req); err != nil {
		return err
	}
	format := cmp.Or(r.URL.Query().Get("format"), "openai")
	if err := checkFormat(format); err != nil {
		return err
	}
	run, err := req.run()
	if err != nil {
		return err
	}
	sub, err := s.submission(r, c, body, run)
	if err != nil {
		return err
	}
	if req.Stream && !wantsStream(r) {
		r.Header.Set("Accept", "text/event-stream")
	}
	if wantsStream(r) {
		return s.runStream(w, r, c, sub, plain.Dialect{})
	}
	return s.chatWait(w, r, c, sub, format)
}

// chatWait answers when the run is over, or with its place when the client has waited for
// as long as it may.
func (s *Server) chatWait(w http.ResponseWriter, r *http.Request, c *call, sub *submission, format string) error {
	ref, _, err := s.reserve(r.Context(), sub)
	if err != nil {
		return err
	}
	st, fold, err := s.finish(r.Context(), sub, ref, s.opts.MaxWait)
	if err != nil {
		return err
	}
	s.nameRun(w, c, ref)
	if !st.Status.Terminal() || fold == nil {
		writeJSON(w, http.StatusAccepted, st)
		return nil
	}
	writeJSON(w, http.StatusOK, chatAnswerOf(st, fold, ref, format))
	return nil
}

func chatAnswerOf(st runState, fold *event.Session, ref eventlog.RunRef, format string) chatAnswer {
	conv := converse(fold, format, dialect.Client)
	return chatAnswer{SessionID: ref.SessionID, RunID: ref.RunID, TraceID: ref.TraceID, Status: st.Status,
		Error: st.Error, Usage: st.Usage, System: conv.System, Messages: conv.Messages}
}
