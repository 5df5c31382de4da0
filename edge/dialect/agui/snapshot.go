package agui

import (
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// A message is one of a snapshot, as a client would have it from the stream.
type message struct {
	ID       string  `json:"id"`
	Role     string  `json:"role"`
	Content  *string `json:"content,omitempty"`
	Calls    []call  `json:"toolCalls,omitempty"`
	CallID   string  `json:"toolCallId,omitempty"`
	Sub      string  `json:"subagentRunId,omitempty"`
	Metadata any     `json:"metadata,omitempty"`
}

type (
	call struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
)

func noneNil(list []message) []message {
	if list == nil {
		return []message{}
	}
	return list
}

// messagesOf is the conversation, in the order in which a client has it: the
// reasoning before an answer, the answer, its results, later reasoning. Activities
// are not among it: clients keep their own.
func messagesOf(s *event.Session) []message {
	p := s.Public()
	var list []message
	for _, m := range p.Messages {
		list = append(list, owned(s, m.RunID, messageOf(p, m))...)
	}
	if w := writer(s); w != nil {
		for _, r := range s.Book.Reasoning {
			if !r.Internal {
				list = append(list, owned(s, w.RunID, []message{reasoning(r)})...)
			}
		}
	}
	return list
}

// owned says of messages of a sub-agent's run whose they are.
func owned(s *event.Session, runID string, list []message) []message {
	if r := s.Run(runID); r != nil && r.ParentRunID != "" {
		for i := range list {
			list[i].Sub = runID
		}
	}
	return list
}

// writer is the run whose model writes, or will: the innermost one.
func writer(s *event.Session) *event.Run {
	if n := len(s.Messages); n > 0 && s.Messages[n-1].Status == event.Streaming {
		return s.Run(s.Messages[n-1].RunID)
	}
	if r := s.Run(s.Book.Thinking); r != nil {
		return r
	}
	for i := len(s.Runs) - 1; i >= 0; i-- {
		if r := s.Runs[i]; r.StartedAt != nil && !r.Status.Terminal() {
			return r
		}
	}
	return nil
}

func reasoning(p *event.Part) message {
	return message{ID: p.ReasoningID, Role: "reasoning", Content: &p.Text}
}

func messageOf(s *event.Session, m *event.Message) []message {
	var before, results, later []message
	var text strings.Builder
	own := message{ID: m.MessageID, Role: string(m.Role)}
	begun := false
	for _, p := range m.Parts {
		switch p.Type {
		case event.PartText:
			begun = true
			text.WriteString(p.Text)
		case event.PartReasoning:
			if begun {
				later = append(later, reasoning(p))
			} else {
				before = append(before, reasoning(p))
			}
		case event.PartToolCall:
			begun = true
			c := s.Call(p.CallID)
			if c == nil || c.Internal {
				continue
			}
			own.Calls = append(own.Calls, call{c.CallID, "function", function{c.Name, c.Args}})
			if c.Done() {
				r := dialect.ResultOf(c)
				content := r.Text()
				results = append(results, message{ID: resultID(c.CallID), Role: "tool", Content: &content, CallID: c.CallID, Metadata: metadataOf(r)})
			}
		}
	}
	content := text.String()
	own.Content = &content
	list := append(before, own)
	list = append(list, results...)
	return append(list, later...)
}

// Snapshot is the conversation and the state, and what is open besides. For a
// client whose run is under way a reset has to end it first: it may have open
// what is closed by now, and there is no other way to say so.
func (d Dialect) Snapshot(kind dialect.Kind, s *event.Session, _ dialect.Audience) []dialect.Message {
	var list []dialect.Message
	if kind == dialect.Reset {
		list = append(list, object("RUN_ERROR").Text("message", "what was asked for is no longer kept; the conversation follows as it is now").
			Text("code", string(event.CodeExpired)).Message(""))
	}
	run := dialect.Shown(s, d.Run)
	if run == nil {
		return list
	}
	e := event.Event{SessionID: s.SessionID, RunID: run.RunID}
	list = append(list, d.started(e, "").Message(""))
	if len(s.State) > 0 {
		list = append(list, object("STATE_SNAPSHOT").Raw("snapshot", s.State).Message(""))
	}
	list = append(list, object("MESSAGES_SNAPSHOT").Value("messages", noneNil(told(s, run))).Message(""))
	for _, a := range s.Public().Activities {
		list = append(list, begin("ACTIVITY_SNAPSHOT", e).Text("messageId", a.ActivityID).Text("activityType", a.Kind).Raw("content", a.Content).Message(""))
	}
	if run.Status.Terminal() {
		return append(list, d.over(s, e, run)...)
	}
	if run.ExpiresAt != nil {
		return append(list, after{d, e, s}.parks().Message(""))
	}
	for _, r := range s.Runs {
		if r.StartedAt != nil && !r.Status.Terminal() && (r == run || r.ParentRunID != "") {
			list = append(list, d.opened(s, r)...)
		}
	}
	return list
}

// told is the conversation without what is told when a parked run goes on.
func told(s *event.Session, run *event.Run) []message {
	list := messagesOf(s)
	if run.ExpiresAt == nil {
		return list
	}
	for _, c := range came(s, run) {
		list = slices.DeleteFunc(list, func(m message) bool { return m.CallID == c.CallID })
	}
	return list
}

// over is how a run ended.
func (d Dialect) over(s *event.Session, e event.Event, r *event.Run) []dialect.Message {
	switch r.Status {
	case event.Failed:
		return begin("RUN_ERROR", e).Text("message", r.Error.Message).Text("code", string(r.Error.Code)).One("")
	case event.Cancelled:
		return after{d, e, s}.cancelled(event.RunCancelledData{By: r.By, Reason: r.Reason})
	}
	return d.run(begin("RUN_FINISHED", e), e).One("")
}

// opened opens again what a run has open: deltas of it follow.
func (d Dialect) opened(s *event.Session, r *event.Run) (list []dialect.Message) {
	e := event.Event{SessionID: s.SessionID, RunID: r.RunID}
	if r.ParentRunID != "" {
		e.Agent = r.Agent
		list = append(list, runStarted(d, e, event.RunStartedData{Agent: r.Agent, ParentCallID: r.ParentCallID})...)
	}
	if r.Book.InStep {
		list = append(list, begin("STEP_STARTED", e).Text("stepName", stepName(r.Book.Step)).Message(""))
	}
	if r != writer(s) {
		return list
	}
	parts := s.Book.Reasoning
	if n := len(s.Messages); n > 0 && s.Messages[n-1].Status == event.Streaming {
		m := s.Messages[n-1]
		parts = m.Parts
		list = append(list, begin("TEXT_MESSAGE_START", e).Text("messageId", m.MessageID).Text("role", string(m.Role)).Message(""))
	}
	for _, p := range parts {
		if p.Streaming && !p.Internal {
			list = append(list, reasoningStarted(d, e, event.ReasoningStartedData{ReasoningID: p.ReasoningID})...)
		}
	}
	for _, c := range s.ToolCalls {
		if c.Streaming && !c.Internal && c.RunID == r.RunID {
			list = append(list, toolStarted(d, e, event.ToolStartedData{CallID: c.CallID, Name: c.Name, MessageID: c.MessageID})...)
		}
	}
	return list
}
