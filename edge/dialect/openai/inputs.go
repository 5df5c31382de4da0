package openai

import (
	"encoding/json"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// An InputItem is something that a response was asked.
type InputItem struct {
	ID   string
	JSON json.RawMessage
}

// Inputs gathers what a response was asked: it takes the events of its run, and
// says nothing. It is an Encoder.
type Inputs struct {
	d       Responses
	clients map[string]bool // calls that the client runs
	Items   []InputItem     // in the order in which they came
	kept    int             // bytes of Items
}

// NewInputs returns one for a response.
func NewInputs(d Responses) *Inputs { return &Inputs{d: d, clients: map[string]bool{}} }

// Next takes an event.
func (n *Inputs) Next(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if gather := gatherers[e.Type]; gather != nil && !e.Internal && e.Agent == "" {
		gather(n, e)
	}
	return nil
}

// Snapshot takes what a fold still has of it: the messages.
func (n *Inputs) Snapshot(_ dialect.Kind, s *event.Session, _ dialect.Audience) []dialect.Message {
	n.Items = nil
	for _, m := range s.View().Messages {
		if m.RunID == n.d.Run && m.Role != event.RoleAssistant && n.d.From == 0 {
			n.message(m.MessageID, m.Role, event.Values(m.Parts))
		}
	}
	return nil
}

var gatherers = map[event.Type]func(*Inputs, event.Event){
	event.ToolStarted: dialect.Take(func(n *Inputs, _ event.Event, d event.ToolStartedData) {
		n.clients[d.CallID] = d.Executor == event.ByClient
	}),
	event.MessageCompleted: dialect.Take(func(n *Inputs, e event.Event, d event.MessageCompletedData) {
		if d.Role != event.RoleAssistant && e.Seq > n.d.From {
			n.message(d.MessageID, d.Role, d.Parts)
		}
	}),
	event.ToolCompleted: dialect.Take((*Inputs).output),
	event.ToolFailed:    dialect.Take((*Inputs).output),
	event.ApprovalResolved: dialect.Take(func(n *Inputs, e event.Event, d event.ApprovalResolvedData) {
		if e.Seq > n.d.From {
			n.add(d.CallID+".approval", dialect.NewObject(128).Text("type", "mcp_approval_response").
				Text("approval_request_id", ApprovalPrefix+d.CallID).Value("approve", d.Decision == event.Approved).Some("reason", d.Reason))
		}
	}),
}

// output is the client's, if the response goes on with it.
func (n *Inputs) output(e event.Event, r dialect.Result) {
	if n.clients[r.CallID] && e.Seq > n.d.From && n.d.From > 0 {
		n.add(r.CallID+".output", dialect.NewObject(128).Text("type", "function_call_output").Text("call_id", r.CallID).
			Text("output", r.Text()).Text("status", "completed"))
	}
}

func (n *Inputs) message(id string, role event.Role, parts []event.Part) {
	content := []json.RawMessage{}
	for _, p := range parts {
		if !p.Internal {
			content = append(content, json.RawMessage(inputPart(p).Close()))
		}
	}
	n.add(id, dialect.NewObject(256).Text("type", "message").Text("role", string(role)).Text("status", "completed").Value("content", content))
}

func inputPart(p event.Part) dialect.Object {
	o := dialect.NewObject(len(p.Text))
	switch p.Type {
	case event.PartText:
		return o.Text("type", "input_text").Text("text", p.Text)
	case event.PartImage:
		return o.Text("type", "input_image").Text("detail", "auto").Text("image_url", p.URL)
	}
	return o.Text("type", "input_file").Some("filename", p.Name).Text("file_url", p.URL+strings.TrimPrefix(p.URI, p.URL))
}

func (n *Inputs) add(id string, o dialect.Object) {
	item := json.RawMessage(o.Text("id", id).Close())
	n.Items = append(n.Items, InputItem{id, item})
	n.kept += len(item)
}

// Kept is the size of the items so far.
func (n *Inputs) Kept() int { return n.kept }
