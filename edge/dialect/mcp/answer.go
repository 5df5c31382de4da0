package mcp

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Members of _meta.
const (
	metaType  = "dev.runlog/type"
	metaData  = "dev.runlog/data"
	metaUsage = "dev.runlog/usage"
	metaTrace = "dev.runlog/trace_id"
)

// notification begins a progress notification; its params are open.
func (c *Call) notification(e event.Event) dialect.Object {
	o := append(make(dialect.Object, 0, 192+len(e.Data)), `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
	o = append(append(o, c.d.Token...), `,"progress":`...)
	return strconv.AppendUint(o, uint64(e.Seq), 10)
}

// progress tells of an event, for people and for programs.
func (c *Call) progress(e event.Event, text string) {
	if c.d.Token == "" || c.retold {
		return
	}
	o := c.notification(e).Text("message", text).Open("_meta").Text(metaType, string(e.Type)).Some("dev.runlog/agent", e.Agent).Raw(metaData, dialect.PublicData(e)).Close()
	c.list = append(c.list, o.Close().Message(""))
}

// Heartbeat keeps the caller's patience: progress grows with the time, and stays
// below the next event's.
func (d Dialect) Heartbeat(h dialect.Heartbeat) []dialect.Message {
	if d.Token == "" {
		return nil
	}
	whole, _, partly := strings.Cut(h.At, ".")
	whole, _, _ = strings.Cut(whole, "~")
	seq, _ := strconv.ParseFloat(whole, 64)
	if partly {
		seq-- // the event is not told to its end
	}
	const hour = 3_600_000
	seq += float64(h.ElapsedMS+1) / float64(h.ElapsedMS+hour)
	o := dialect.NewObject(192).Text("jsonrpc", "2.0").Text("method", "notifications/progress").Open("params").Raw("progressToken", json.RawMessage(d.Token)).
		Value("progress", seq).Text("message", string(h.Status)).Open("_meta").Text(metaType, "heartbeat").Close().Close()
	return o.One("")
}

type (
	link struct {
		Type     string `json:"type"` // resource_link
		URI      string `json:"uri"`
		Name     string `json:"name"`
		MimeType string `json:"mimeType,omitempty"`
		Size     int64  `json:"size,omitempty"`
	}
	textContent struct {
		Type string `json:"type"` // text
		Text string `json:"text"`
	}
	result struct {
		Content    []any           `json:"content"`
		Structured Outcome         `json:"structuredContent"`
		IsError    bool            `json:"isError,omitempty"`
		Meta       json.RawMessage `json:"_meta,omitempty"`
	}
)

// An Outcome is how a run ended or what it waits for, for programs.
type Outcome struct {
	RunID     string          `json:"run_id"`
	SessionID string          `json:"session_id"`
	Status    event.Status    `json:"status"`
	Text      string          `json:"text,omitempty"`
	Error     *event.RunError `json:"error,omitempty"`
	Waits     []Waiting       `json:"waits_for,omitempty"`
}

// Waiting is something that a run waits for.
type Waiting struct {
	CallID    string      `json:"call_id"`
	Tool      string      `json:"tool"`
	Kind      string      `json:"kind"` // approval or result
	ExpiresAt *event.Time `json:"expires_at,omitempty"`
}

// OutcomeSchema describes an Outcome.
var OutcomeSchema = json.RawMessage(`{"type":"object","properties":{"run_id":{"type":"string"},"session_id":{"type":"string"},` +
	`"status":{"type":"string"},"text":{"type":"string"},"error":{"type":"object"},"waits_for":{"type":"array","items":{"type":"object"}}},` +
	`"required":["run_id","session_id","status"]}`)

// answer ends the call.
func (c *Call) answer(o Outcome, text string, failed bool, usage *event.Usage) {
	o.RunID, o.SessionID = c.run, c.session
	r := result{Content: []any{textContent{"text", text}}, Structured: o, IsError: failed}
	for _, f := range c.files {
		r.Content = append(r.Content, f)
	}
	meta := dialect.NewObject(128).Some(metaTrace, c.trace)
	if usage != nil {
		meta = meta.Value(metaUsage, usage)
	}
	r.Meta = json.RawMessage(meta.Close())
	m := dialect.NewObject(256).Text("jsonrpc", "2.0").Raw("id", json.RawMessage(c.d.ID)).Value("result", r).Message("")
	c.over, c.made = true, m.Data
	c.list = append(c.list, m)
}

func (c *Call) runCompleted(_ event.Event, d event.RunCompletedData) {
	text := c.text
	if d.Output.MessageID != c.said { // what else was said is no answer
		text = ""
	}
	c.answer(Outcome{Status: event.Completed, Text: text}, text, false, &d.Usage)
}

func (c *Call) runFailed(_ event.Event, d event.RunFailedData) {
	c.answer(Outcome{Status: event.Failed, Error: &event.RunError{Code: d.Code, Message: d.Message, Retryable: d.Retryable}},
		string(d.Code)+": "+d.Message, true, d.Usage)
}

func (c *Call) runCancelled(_ event.Event, d event.RunCancelledData) {
	text := "the run was cancelled by " + d.By
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	c.answer(Outcome{Status: event.Cancelled}, text, true, d.Usage)
}

// runStatus asks for what a parked run waits for, or answers with it.
func (c *Call) runStatus(e event.Event, d event.RunStatusData) {
	c.progress(e, string(d.Status))
	if d.ExpiresAt == nil || e.Seq <= c.d.From && d.ExpiresAt.UnixMicro() != c.d.Still {
		return
	}
	if c.d.Asks && len(c.asks) > 0 && len(c.tools) == 0 {
		for _, a := range c.asks {
			c.list = append(c.list, c.elicit(a))
		}
		return
	}
	c.waits(d)
}

// waits answers with what somebody else has to do first.
func (c *Call) waits(d event.RunStatusData) {
	o := Outcome{Status: d.Status}
	text := "The run " + c.run + " is not finished: it waits, until " + d.ExpiresAt.UTC().Format("2006-01-02T15:04:05Z") + ", for"
	for _, a := range c.asks {
		o.Waits = append(o.Waits, Waiting{a.CallID, c.name(a.CallID), "approval", &a.ExpiresAt})
		text += "\n- an approval of the call " + a.CallID + " of " + c.name(a.CallID) + ": POST /v1/runs/" + c.run + "/approvals/" + a.CallID + ` {"decision": "approve" or "deny"}`
	}
	for _, id := range c.tools {
		o.Waits = append(o.Waits, Waiting{id, c.name(id), "result", d.ExpiresAt})
		text += "\n- the result of the call " + id + " of " + c.name(id) + ", which a client runs: POST /v1/runs/" + c.run + "/tools/" + id
	}
	if len(o.Waits) == 0 {
		text += " somebody outside: see /v1/runs/" + c.run
	}
	c.answer(o, text+"\nThen "+FollowTool+" with this run_id has its end.", false, nil)
}

// FollowTool is the tool that waits for the end of a run.
const FollowTool = "follow_run"

// ElicitID is the id of the request that asks about a call.
func ElicitID(runID, callID string) string { return runID + "/" + callID }

// CutElicitID takes it apart.
func CutElicitID(id string) (runID, callID string, ok bool) {
	i := strings.IndexByte(id, '/')
	if i < 0 {
		return "", "", false
	}
	return id[:i], id[i+1:], true
}

var decisionSchema = json.RawMessage(`{"type":"object","properties":{"approve":{"type":"boolean","title":"Allow it?","default":true},` +
	`"reason":{"type":"string","title":"Why, for the agent"}}}`)

// elicit asks the client's user about a call.
func (c *Call) elicit(a event.ApprovalRequestedData) dialect.Message {
	text := "Allow " + c.name(a.CallID) + "?"
	if t := c.calls[a.CallID]; t != nil && t.args != "" {
		text += "\n" + t.args
	}
	o := dialect.NewObject(512).Text("jsonrpc", "2.0").Text("id", ElicitID(c.run, a.CallID)).Text("method", "elicitation/create").
		Open("params").Text("message", text).Raw("requestedSchema", decisionSchema).
		Open("_meta").Text("dev.runlog/args_sha256", a.ArgsSHA256).Close().Close()
	return o.Message("")
}
