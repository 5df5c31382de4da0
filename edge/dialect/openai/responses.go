// Package openai has the dialects of OpenAI's APIs: Responses, and chunks of Chat
// Completions.
//
// A response is a run, or what follows of one that was parked. Its output:
//
//   - message, reasoning (as its summary) and, for tools of the client's,
//     function_call, which the client answers in a next request;
//   - mcp_call for tools that run here: clients run function_calls themselves;
//   - mcp_approval_request where somebody has to decide. The call that it is
//     about is closed as incomplete, and told whole once it has been decided.
//
// Clients number the items, so the dialect follows its run. What an attempt that
// was discarded has said is closed, empty and incomplete, and is no part of the
// response in the end; who joins deltas of all items has had it.
package openai

import (
	"encoding/json"
	"strconv"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Responses is the stream of a response. The zero value tells of whole runs under
// their own ids.
type Responses struct {
	dialect.Quiet // clients refuse events that they do not know

	ID   string    // of the response; empty: the run's
	Run  string    // empty: whichever run the log tells of
	From event.Seq // the response is what comes after this event
	// Of a response that has no event yet.
	Agent   string
	Created int64 // Unix time
}

// Name is openai.
func (Responses) Name() string { return "openai" }

// Begin returns an encoder.
func (d Responses) Begin() dialect.Encoder { return NewResponse(d) }

// NewResponse returns an encoder that can be asked for the response so far.
func NewResponse(d Responses) *Response { return &Response{d: d} }

// Event encodes an event as if it were the first.
func (d Responses) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	return d.Begin().Next(e, line, to)
}

// Snapshot tells the run under way, or the last one, from a fold.
func (d Responses) Snapshot(kind dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	return d.Begin().Snapshot(kind, s, to)
}

// Stride is how many numbers an event has: the k-th message of event seq has the
// sequence_number seq*Stride+k.
const Stride = 16

// Lost says what Responses have no word for.
func (Responses) Lost() map[event.Type]string {
	const beside = "a response holds what the model says and calls, and nothing beside it"
	return map[event.Type]string{
		event.SessionCreated:    "a conversation is known by its responses",
		event.RunQueued:         "the client has sent it",
		event.RunRecovered:      "shows only in what is discarded",
		event.StepStarted:       "a response has no steps",
		event.StepCompleted:     "a response has no steps",
		event.MessageStarted:    "an item begins with its first text",
		event.ToolProgress:      "there is no word for it",
		event.ApprovalResolved:  "shows in the call",
		event.ArtifactStarted:   beside,
		event.ArtifactProgress:  beside,
		event.ArtifactCompleted: beside,
		event.StateSnapshot:     beside,
		event.StateDelta:        beside,
		event.ActivitySnapshot:  beside,
		event.ActivityDelta:     beside,
		event.BudgetExceeded:    "shows in the error",
		event.Custom:            "clients refuse events that they do not know",
	}
}

// A Response is a response in the making.
type Response struct {
	d      Responses
	id     string
	agent  string
	at     event.Time
	begun  bool // response.created is out
	over   bool // it has ended; what comes is another one
	status string
	err    any
	why    any
	usage  *event.Usage
	items  []*item
	byID   map[string]*item
	calls  map[string]*call
	seq    event.Seq
	list   []dialect.Message
	told   int // messages with this seq before list: of a snapshot
	kept   int // bytes of the items that are done
}

// Kept is the size of the items that are done: the last event repeats them.
func (r *Response) Kept() int { return r.kept }

type call struct {
	name, args string
	client     bool
	asked      bool // somebody has to approve it
}

// Next tells of an event.
func (r *Response) Next(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal || e.Agent != "" {
		return nil
	}
	if r.calls == nil || e.Type == event.RunStarted {
		r.reset(e)
	}
	r.seq, r.list = e.Seq, nil
	if learn := learners[e.Type]; learn != nil {
		learn(r, e)
	}
	if tell := tellers[e.Type]; tell != nil && e.Seq > r.d.From {
		tell(r, e)
	}
	return r.list
}

// Snapshot tells a run anew.
func (r *Response) Snapshot(_ dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	run := dialect.Shown(s, r.d.Run)
	if run == nil {
		return nil
	}
	var all []dialect.Message
	r.d.From = 0
	for _, e := range dialect.Retell(s, run) {
		r.told = len(all)
		all = append(all, r.Next(e, nil, to)...)
	}
	r.told = 0
	return all
}

func (r *Response) reset(e event.Event) {
	*r = Response{d: r.d, id: r.d.ID, told: r.told, at: e.Time, status: "in_progress", byID: map[string]*item{}, calls: map[string]*call{}}
	if r.id == "" {
		r.id = e.RunID
	}
}

// learners take notice of what another response tells.
var learners = map[event.Type]teller{
	event.RunStarted:        dialect.Take((*Response).learnRun),
	event.ToolStarted:       dialect.Take((*Response).learnCall),
	event.ToolArgs:          dialect.Take((*Response).learnArgs),
	event.ApprovalRequested: dialect.Take((*Response).learnAsked),
}

func (r *Response) learnRun(_ event.Event, d event.RunStartedData) { r.agent = d.Agent }

// learnCall knows of the model's calls; those of a conversation that the client has sent it has.
func (r *Response) learnCall(e event.Event, d event.ToolStartedData) {
	if e.CommandID == "" {
		r.calls[d.CallID] = &call{name: d.Name, client: d.Executor == event.ByClient}
	}
}

func (r *Response) learnArgs(_ event.Event, d event.ToolArgsData) {
	if c := r.calls[d.CallID]; c != nil {
		c.args = d.Args
	}
}

func (r *Response) learnAsked(_ event.Event, d event.ApprovalRequestedData) {
	if c := r.calls[d.CallID]; c != nil {
		c.asked = true
	}
}

// begin opens the response if that has not been done, or another one for what
// follows the end of the last.
func (r *Response) begin() {
	if r.over {
		calls, agent, at := r.calls, r.agent, r.at
		id := r.id + "_" + r.seq.String()
		list, seq := r.list, r.seq
		*r = Response{d: r.d, id: id, told: r.told, agent: agent, at: at, status: "in_progress", byID: map[string]*item{}, calls: calls, list: list, seq: seq}
	}
	if r.begun {
		return
	}
	r.begun = true
	for _, kind := range []string{"response.created", "response.in_progress"} {
		r.emit(kind, r.start(kind, 512).Raw("response", r.JSON()))
	}
}

// start begins a message.
func (r *Response) start(kind string, size int) dialect.Object {
	o := append(dialect.NewObject(size+64), `"type":"`...)
	o = append(append(o, kind...), `","sequence_number":`...)
	return strconv.AppendUint(o, uint64(r.seq)*Stride+uint64(min(r.told+len(r.list), Stride-1)), 10)
}

func (r *Response) emit(kind string, o dialect.Object) { r.list = append(r.list, o.Message(kind)) }

// JSON is the response as an object, with what stands of its output.
func (r *Response) JSON() json.RawMessage {
	output := []json.RawMessage{}
	for _, i := range r.items {
		if !i.dropped && i.final != nil {
			output = append(output, i.final)
		}
	}
	id, status, agent, at := r.id, r.status, r.agent, r.at.Unix()
	if r.calls == nil {
		id, status, agent, at = r.d.ID, "queued", r.d.Agent, r.d.Created
	}
	return event.Encode(object{ID: id, Object: "response", CreatedAt: max(at, 0), Status: status, Error: r.err, Incomplete: r.why,
		Model: agent, Output: output, Parallel: true, ToolChoice: "auto", Tools: []string{}, Metadata: struct{}{}, Usage: usageOf(r.usage)})
}

type object struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	CreatedAt    int64             `json:"created_at"`
	Status       string            `json:"status"`
	Error        any               `json:"error"`
	Incomplete   any               `json:"incomplete_details"`
	Instructions any               `json:"instructions"`
	Model        string            `json:"model"`
	Output       []json.RawMessage `json:"output"`
	Parallel     bool              `json:"parallel_tool_calls"`
	ToolChoice   string            `json:"tool_choice"`
	Tools        []string          `json:"tools"`
	Temperature  any               `json:"temperature"`
	TopP         any               `json:"top_p"`
	Metadata     any               `json:"metadata"`
	Usage        *usage            `json:"usage"`
}

type usage struct {
	Input        int64 `json:"input_tokens"`
	InputDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output        int64 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

func usageOf(u *event.Usage) *usage {
	if u == nil {
		return nil
	}
	out := &usage{Input: u.InputTokens, Output: u.OutputTokens, Total: u.InputTokens + u.OutputTokens}
	out.InputDetails.Cached, out.OutputDetails.Reasoning = u.CachedInputTokens, u.ReasoningTokens
	return out
}
