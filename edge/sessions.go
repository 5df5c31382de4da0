package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A sessionState is a session without its content.
type sessionState struct {
	SessionID string          `json:"session_id"`
	Agent     string          `json:"agent"`
	CreatedAt event.Time      `json:"created_at"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Seq       event.Seq       `json:"seq"`
	Runs      []*event.Run    `json:"runs"`
}

// fold loads the session that a request names.
func (s *Server) fold(ctx context.Context, c *call, id string) (*event.Session, error) {
	k, err := s.findSession(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return s.load(ctx, k)
}

// foldToTell is fold for an answer that is the conversation, or a part of it that can be
// as large.
func (s *Server) foldToTell(ctx context.Context, c *call, id string) (*event.Session, error) {
	k, err := s.findSession(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return s.loadToTell(ctx, k)
}

// load returns a session's fold, to be looked at and let go.
func (s *Server) load(ctx context.Context, k eventlog.Key) (*event.Session, error) {
	fold, _, err := s.hub.Load(ctx, k, nil)
	return fold, err
}

// loadToTell is load for what is answered with writeJSON next.
func (s *Server) loadToTell(ctx context.Context, k eventlog.Key) (*event.Session, error) {
	fold, _, err := s.hub.Load(ctx, k, holdOf(ctx))
	return fold, err
}

// holdOf is the hold of the call that a context is of; nil if it is of none.
func holdOf(ctx context.Context) *stream.Hold {
	if c := callOf(ctx); c != nil {
		return c.hold()
	}
	return nil
}

func (s *Server) getSession(w http.ResponseWriter, r *http.Request, c *call) error {
	fold, err := s.fold(r.Context(), c, r.PathValue("session"))
	if err != nil {
		return err
	}
	p := fold.Public()
	if p.Runs == nil {
		p.Runs = []*event.Run{}
	}
	writeJSON(w, http.StatusOK, sessionState{p.SessionID, p.Agent, p.CreatedAt, p.Metadata, p.Seq, p.Runs})
	return nil
}

// getSnapshot answers with the whole conversation as a value.
func (s *Server) getSnapshot(w http.ResponseWriter, r *http.Request, c *call) error {
	to, err := audience(r, c)
	if err != nil {
		return err
	}
	fold, err := s.foldToTell(r.Context(), c, r.PathValue("session"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, json.RawMessage(native.Fold(fold, to)))
	return nil
}

// A conversation is the messages of a session in one of the formats. ToolCalls
// is of the native one, System of Anthropic's.
type conversation struct {
	SessionID string          `json:"session_id"`
	Seq       event.Seq       `json:"seq"`
	System    string          `json:"system,omitempty"`
	Messages  json.RawMessage `json:"messages"`
	ToolCalls json.RawMessage `json:"tool_calls,omitempty"`
}

var formats = []string{"native", "openai", "anthropic"}

// getMessages answers with the conversation as its readers know it.
func (s *Server) getMessages(w http.ResponseWriter, r *http.Request, c *call) error {
	format := r.URL.Query().Get("format")
	if err := checkFormat(format); err != nil {
		return err
	}
	to, err := audience(r, c)
	if err != nil {
		return err
	}
	fold, err := s.foldToTell(r.Context(), c, r.PathValue("session"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, converse(fold, format, to))
	return nil
}

func checkFormat(format string) error {
	if format == "" || slices.Contains(formats, format) {
		return nil
	}
	p := bad("format", "format=%s is not known; use native, openai or anthropic", format)
	p.Known = formats
	return p
}

func converse(fold *event.Session, format string, to dialect.Audience) conversation {
	view := event.View{Transcript: true, Public: to == dialect.Client}
	conv := conversation{SessionID: fold.SessionID, Seq: fold.Seq}
	switch format {
	case "openai":
		conv.Messages = fold.OpenAIView(view)
	case "anthropic":
		conv.System, conv.Messages = fold.AnthropicView(view)
	default:
		if to == dialect.Client {
			fold = fold.Public()
		}
		conv.Messages = orEmpty(fold.Messages)
		conv.ToolCalls = orEmpty(fold.ToolCalls)
	}
	return conv
}

func orEmpty[T any](list []T) json.RawMessage {
	if list == nil {
		list = []T{}
	}
	return event.Encode(list)
}

// sessionKey is where a session would be, for callers whom it may concern.
func sessionKey(c *call, id string) (eventlog.Key, error) {
	k := eventlog.Key{Tenant: c.who.Tenant, Session: id}
	c.note("session", id)
	if event.CheckID("session id", id) != nil || !c.who.Reaches(id, "") {
		return k, notFound("session", id)
	}
	return k, nil
}

// findSession answers for a session that has events or commands; another
// tenant's is not there.
func (s *Server) findSession(ctx context.Context, c *call, id string) (eventlog.Key, error) {
	k, err := sessionKey(c, id)
	if err != nil || s.hub.HasEvents(k) {
		return k, err
	}
	return k, s.confirm(ctx, k)
}

// confirm asks the log's leader whether there is such a session.
func (s *Server) confirm(ctx context.Context, k eventlog.Key) error {
	for range 2 { // a command may turn into events between the two looks
		head, err := s.Log.Head(ctx, k)
		if err != nil || head.Seq > 0 {
			return err
		}
		waiting, err := s.Log.Inbox(ctx, k)
		if err != nil || slices.ContainsFunc(waiting, func(w eventlog.Waiting) bool { return w.Kind == event.Invoke }) {
			return err
		}
	}
	return notFound("session", k.Session)
}
