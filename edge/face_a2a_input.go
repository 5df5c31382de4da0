package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// a2aInput is what SendMessage and SendStreamingMessage take. What an agent does
// not know of a message (extensions, references to other tasks) is passed over.
type a2aInput struct {
	Raw           json.RawMessage `json:"message"`
	Configuration struct {
		History     *int            `json:"historyLength"`
		Immediately bool            `json:"returnImmediately"`
		Push        json.RawMessage `json:"taskPushNotificationConfig"`
	} `json:"configuration"`

	message a2aMessage
}

type a2aMessage struct {
	MessageID string    `json:"messageId"`
	ContextID string    `json:"contextId"`
	TaskID    string    `json:"taskId"`
	Role      string    `json:"role"`
	Parts     []a2aPart `json:"parts"`
}

// An a2aPart is one of text, data, a file by its URL, or the file itself.
type a2aPart struct {
	Text      *string         `json:"text"`
	Data      json.RawMessage `json:"data"`
	URL       string          `json:"url"`
	Raw       string          `json:"raw"` // base64
	Filename  string          `json:"filename"`
	MediaType string          `json:"mediaType"`
}

func readA2A(q *rpcCall) (*a2aInput, error) {
	in := &a2aInput{}
	if err := decodeOpen(q.Params, in); err != nil {
		return nil, err
	}
	if len(in.Raw) == 0 || decodeOpen(in.Raw, &in.message) != nil {
		return nil, bad("message", "message is missing, or none: send {messageId, role: ROLE_USER, parts: [{text}]}")
	}
	m := &in.message
	switch {
	case len(in.Configuration.Push) > 0 && string(in.Configuration.Push) != "null":
		return nil, a2aNoPush
	case m.Role != "ROLE_USER":
		return nil, bad("message.role", "message.role is %q; a client's messages have ROLE_USER", m.Role)
	case len(m.Parts) == 0 || len(m.Parts) > maxMessages:
		return nil, bad("message.parts", "message.parts has %d parts; send 1 to %d", len(m.Parts), maxMessages)
	}
	for _, id := range []struct{ param, value string }{{"message.messageId", m.MessageID}, {"message.contextId", m.ContextID}} {
		if err := event.CheckID(id.param, id.value); err != nil && (id.value != "" || id.param == "message.messageId") {
			return nil, bad(id.param, "%s", err)
		}
	}
	return in, nil
}

// a2aAccept makes the entry of a new task, or finds the one that the message is
// for. The same message again is the same task, and tells it nothing twice.
func (s *Server) a2aAccept(r *http.Request, c *call, in *a2aInput) (*a2aTask, error) {
	if in.message.TaskID != "" {
		return s.a2aTell(r, c, in)
	}
	m := &in.message
	said, err := s.a2aSaid(r.Context(), c, m)
	if err != nil {
		return nil, err
	}
	agent := r.PathValue("agent")
	sub, err := submissionOf(r, c, runRequest{Agent: agent, SessionID: m.ContextID}, []inputMessage{said}, bodyHash("a2a/"+agent, in.Raw))
	if err != nil {
		return nil, err
	}
	sub.idempotencyKey = "a2a/" + m.MessageID
	n, _, err := s.reserveNamed(r.Context(), sub)
	return &a2aTask{namedRun: *n}, err
}

// a2aSaid is a message in runlog's form. Data is told to the model as JSON.
func (s *Server) a2aSaid(ctx context.Context, c *call, m *a2aMessage) (inputMessage, error) {
	said := inputMessage{InputMessage: event.InputMessage{MessageID: m.MessageID, Role: event.RoleUser}}
	for i, p := range m.Parts {
		part, err := s.a2aPart(ctx, c, fmt.Sprintf("message.parts[%d]", i), p)
		if err != nil {
			return said, err
		}
		said.Parts = append(said.Parts, part)
	}
	said.text = string(event.Encode(said.Parts))
	return said, nil
}

func (s *Server) a2aPart(ctx context.Context, c *call, at string, p a2aPart) (event.Part, error) {
	switch {
	case p.Text != nil:
		return event.TextPart(*p.Text), nil
	case len(p.Data) > 0:
		return event.TextPart(string(p.Data)), nil
	case p.Raw != "":
		return s.inlineFile(ctx, c, at, "data:"+p.MediaType+";base64,"+p.Raw, p.MediaType, p.Filename)
	case p.URL != "":
		return s.inlineFile(ctx, c, at, p.URL, p.MediaType, p.Filename)
	}
	return event.Part{}, bad(at, "%s is empty: send text, data, url or raw", at)
}

// a2aTell gives a task a message: what it waits for, or, while it works, something
// to take into account at its next step.
func (s *Server) a2aTell(r *http.Request, c *call, in *a2aInput) (*a2aTask, error) {
	ctx, m := r.Context(), &in.message
	t, err := s.a2aFind(r, c, m.TaskID)
	if err != nil {
		return nil, err
	}
	if m.ContextID != "" && m.ContextID != t.place.key.Session {
		return nil, bad("message.contextId", "the task %q is of another context: leave contextId out, or send %q", m.TaskID, t.place.key.Session)
	}
	name := derivedID("run", t.place.runID, "a2a", m.MessageID)
	hash := bodyHash("a2a/"+t.place.runID, in.Raw)
	if known, err := s.a2aTold(ctx, c, t, name, hash); known || err != nil {
		return t, err
	}
	st, fold, err := s.state(ctx, t.place)
	if err != nil {
		return nil, err
	}
	steer := derivedID("cmd", t.place.runID, "a2a", m.MessageID)
	switch {
	case fold != nil && fold.Knows(steer): // it was told before
		return t, nil
	case fold == nil || st.Status.Terminal():
		return nil, a2aUnsupported("the task has ended (" + string(st.Status) + "): send a message without taskId to go on in its context")
	case fold.Parked() == nil || fold.Parked().RunID != t.place.runID:
		return t, s.a2aSteer(ctx, c, t, m, steer)
	}
	answers, err := m.answers(fold)
	if err != nil {
		return nil, err
	}
	ref, start, err := s.continues(ctx, c, fold, name, hash, answers)
	t.answered, t.start = ref.After, start
	return t, err
}

// a2aTold reports whether a message has answered its task before.
func (s *Server) a2aTold(ctx context.Context, c *call, t *a2aTask, name, hash string) (bool, error) {
	ref, err := s.Log.FindRun(ctx, c.who.Tenant, name)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return false, nil
	case err == nil && ref.BodyHash != hash:
		return false, eventlog.ErrMismatch
	}
	t.answered = ref.After
	return ref.Accepted, err
}

// a2aSteer prepares a message to a task that works, as the command with an id.
func (s *Server) a2aSteer(ctx context.Context, c *call, t *a2aTask, m *a2aMessage, id string) error {
	said, err := s.a2aSaid(ctx, c, m)
	if err != nil {
		return err
	}
	cmd := event.Command{CommandID: id, Kind: event.Steer, Messages: []event.InputMessage{said.InputMessage}}
	t.start = func(ctx context.Context) error { return s.command(ctx, c, t.place, cmd) }
	return nil
}

// An a2aAnswer is data that answers one call.
type a2aAnswer struct {
	CallID     string          `json:"call_id"`
	Decision   event.Decision  `json:"decision"`
	Reason     string          `json:"reason"`
	Content    json.RawMessage `json:"content"`
	Structured json.RawMessage `json:"structured"`
	Failed     bool            `json:"failed"`
}

// answers are commands for all that the task waits for. Data names its call; a
// text is for all approvals, or for the only tool.
func (m *a2aMessage) answers(fold *event.Session) ([]event.Command, error) {
	run := fold.Parked()
	waits := a2aWaits(fold, run)
	if len(waits) == 0 {
		return nil, a2aUnsupported("the task waits for somebody else's decision, or for a larger budget (POST /v1/runs/" + run.RunID + "/resume)")
	}
	given := map[string]event.Command{}
	for i, p := range m.Parts {
		if len(p.Data) == 0 {
			continue
		}
		if err := a2aByData(fmt.Sprintf("message.parts[%d]", i), p.Data, waits, given); err != nil {
			return nil, err
		}
	}
	if text := m.text(); text != "" && len(given) < len(waits) {
		if err := a2aByText("message.parts", text, waits, given); err != nil {
			return nil, err
		}
	}
	list := make([]event.Command, 0, len(waits))
	var missing []string
	for _, t := range waits {
		if cmd, ok := given[t.CallID]; ok {
			list = append(list, cmd)
		} else {
			missing = append(missing, t.CallID+" ("+t.Name+")")
		}
	}
	if len(missing) > 0 {
		return nil, bad("message.parts", "answer all that the task waits for, with data {call_id, decision} or {call_id, content}; missing: %s", strings.Join(missing, ", "))
	}
	return list, nil
}

// text is what a message says in words.
func (m *a2aMessage) text() string {
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Text != nil {
			b.WriteString(*p.Text)
		}
	}
	return strings.TrimSpace(b.String())
}

// a2aWaits are the calls that somebody outside has to answer.
func a2aWaits(fold *event.Session, run *event.Run) []*event.ToolCall {
	var list []*event.ToolCall
	for _, t := range fold.ToolCalls {
		if t.Waits() && !t.Internal && fold.Within(t.RunID, run.RunID) {
			list = append(list, t)
		}
	}
	return list
}

func a2aByData(at string, data json.RawMessage, waits []*event.ToolCall, given map[string]event.Command) error {
	var a a2aAnswer
	if json.Unmarshal(data, &a) != nil || a.CallID == "" {
		if len(waits) == 1 && waits[0].Status != event.WaitingApproval {
			given[waits[0].CallID] = a2aResult(waits[0], []event.Part{event.TextPart(string(data))}, data, false)
			return nil
		}
		return bad(at, "%s: data that answers names its call_id", at)
	}
	for _, t := range waits {
		if t.CallID != a.CallID {
			continue
		}
		cmd, err := a.command(at, t)
		given[t.CallID] = cmd
		return err
	}
	return bad(at, "%s: the task does not wait for the call %q", at, a.CallID)
}

func (a *a2aAnswer) command(at string, t *event.ToolCall) (event.Command, error) {
	if t.Status == event.WaitingApproval {
		if a.Decision != event.Approved && a.Decision != event.Denied {
			return event.Command{}, bad(at+".data.decision", "%s: decision is %q; send approve or deny", at, a.Decision)
		}
		return decision(t, a.Decision == event.Approved, a.Reason), checkReason(a.Reason)
	}
	content, err := readContent(at, map[string]json.RawMessage{"content": a.Content})
	if err == nil && len(content.calls)+len(content.results) > 0 {
		err = bad(at+".data.content", "%s: the content of a result is a text, or parts of text, image, audio or file", at)
	}
	return a2aResult(t, orText(content.parts), a.Structured, a.Failed), err
}

func a2aResult(t *event.ToolCall, content []event.Part, structured json.RawMessage, failed bool) event.Command {
	if structured = bytes.TrimSpace(structured); len(structured) > 0 && structured[0] != '{' {
		structured = nil // only objects are
	}
	return resultOf(t.CallID, content, structured, failed)
}

// a2aByText reads approve, or deny and why; or the result of the only tool.
func a2aByText(at, text string, waits []*event.ToolCall, given map[string]event.Command) error {
	if len(waits) == 1 && waits[0].Status != event.WaitingApproval {
		given[waits[0].CallID] = a2aResult(waits[0], []event.Part{event.TextPart(text)}, nil, false)
		return nil
	}
	word, reason, _ := strings.Cut(text, " ")
	word = strings.ToLower(strings.TrimRight(word, ".,:;!-"))
	if word != string(event.Approved) && word != string(event.Denied) {
		return bad(at, "%s: the task waits for a decision: begin with approve or deny, or send data {call_id, decision, reason}", at)
	}
	for _, t := range waits {
		if _, ok := given[t.CallID]; !ok && t.Status == event.WaitingApproval {
			given[t.CallID] = decision(t, word == string(event.Approved), strings.TrimSpace(reason))
		}
	}
	return checkReason(reason)
}
