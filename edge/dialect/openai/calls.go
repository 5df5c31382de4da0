package openai

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// server is the server_label of tools that run here.
const server = "runlog"

// ApprovalPrefix and a call's id are the id of the approval that it needs.
const ApprovalPrefix = "mcpr_"

func (r *Response) toolStarted(_ event.Event, d event.ToolStartedData) {
	c := r.calls[d.CallID]
	if c == nil {
		return
	}
	r.add(kindOf(c), d.CallID, r.callItem(&item{id: d.CallID}, "in_progress"))
}

func kindOf(c *call) string {
	if c.client {
		return "function_call"
	}
	return "mcp_call"
}

// callItem is a call as an item, without a result.
func (r *Response) callItem(i *item, status string) any {
	c := r.calls[i.id]
	if c.client {
		return functionCall{"function_call", i.id, i.id, c.name, c.args, status}
	}
	return mcpCall{Type: "mcp_call", ID: i.id, Server: server, Name: c.name, Args: c.args, Status: status}
}

// words are the event names about arguments.
func words(kind, end string) string {
	if kind == "function_call" {
		return "response.function_call_arguments." + end
	}
	return "response.mcp_call_arguments." + end
}

func (r *Response) argsDelta(e event.Event) {
	i, text := r.delta(e)
	if i == nil {
		return
	}
	kind := words(i.kind, "delta")
	r.emit(kind, r.about(kind, i, len(text)).Raw("delta", text))
}

// delta returns a delta's text, as JSON, and the item that it goes on with; nil if
// there is none.
func (r *Response) delta(e event.Event) (*item, json.RawMessage) {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil, nil
	}
	return r.byID[dialect.Unquoted(id)], text
}

func (r *Response) toolArgs(_ event.Event, d event.ToolArgsData) {
	c, i := r.calls[d.CallID], r.byID[d.CallID]
	if c == nil || i == nil || !i.open {
		return
	}
	kind := words(i.kind, "done")
	r.emit(kind, r.about(kind, i, len(d.Args)).Text("name", d.Name).Text("arguments", d.Args))
	if c.client {
		r.done(i, r.callItem(i, "completed"))
	}
}

func (r *Response) toolRunning(_ event.Event, d event.ToolRunningData) {
	if i := r.byID[d.CallID]; i != nil && i.open && i.kind == "mcp_call" {
		r.emit("response.mcp_call.in_progress", r.about("response.mcp_call.in_progress", i, 0))
	}
}

// toolEnded closes a call of a tool that runs here; one that was told of in an
// earlier response, or before it was decided about, is told anew.
func (r *Response) toolEnded(e event.Event, d dialect.Result) {
	c := r.calls[d.CallID]
	if c == nil || c.client {
		return
	}
	i := r.byID[d.CallID]
	if i == nil || !i.open {
		i = r.add("mcp_call", d.CallID, r.callItem(&item{id: d.CallID}, "in_progress"))
		i.attempt = false
	}
	m, _ := r.callItem(i, "completed").(mcpCall)
	if id := ApprovalPrefix + d.CallID; c.asked {
		m.Approval = &id
	}
	if e.Type == event.ToolFailed {
		why := string(d.Outcome) + ": " + d.Message
		m.Status, m.Error = "failed", &why
	} else {
		text := d.Text()
		m.Output = &text
	}
	kind := "response.mcp_call." + m.Status
	r.emit(kind, r.about(kind, i, 0))
	r.done(i, m)
}

// approvalRequested puts the question in the place of the call.
func (r *Response) approvalRequested(_ event.Event, d event.ApprovalRequestedData) {
	c := r.calls[d.CallID]
	if c == nil {
		return // of a call that clients do not see
	}
	if i := r.byID[d.CallID]; i != nil && i.open {
		r.drop(i, r.callItem(i, "incomplete"))
	}
	q := approvalRequest{"mcp_approval_request", ApprovalPrefix + d.CallID, server, c.name, c.args}
	i := r.add(q.Type, q.ID, q)
	i.attempt = false
	r.done(i, q)
}
