package openai

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/internal/wire"
	"github.com/runlog-dev/runlog/worker/model"
)

// chunk is what runlog reads of a chat.completion.chunk. Members that servers
// fill with one thing or another are raw.
type chunk struct {
	Choices []struct {
		Index        int
		Delta        delta
		FinishReason string `json:"finish_reason"`
	}
	Usage *usage
}

type delta struct {
	Content          json.RawMessage // a string; Mistral: a list of pieces
	Refusal          string
	ReasoningContent json.RawMessage `json:"reasoning_content"` // DeepSeek, older vLLM
	Reasoning        json.RawMessage // vLLM, Ollama, OpenRouter
	ToolCalls        []callDelta     `json:"tool_calls"`
	FunctionCall     *function       `json:"function_call"` // servers from before tools
}

// A piece of a content list: text, or thinking that is a list again.
type piece struct {
	Type, Text string
	Thinking   []piece
}

type callDelta struct {
	Index    *int
	ID       string
	Function function
}

type function struct {
	Name      string
	Arguments json.RawMessage // a string; some servers send the object
}

type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	PromptDetails    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// A reader turns the chunks of one stream into an answer.
type reader struct {
	answer  *wire.Answer
	call    *wire.Call
	calls   []*openCall
	reason  string
	refused bool
	usage   event.Usage
}

func newReader(a *wire.Answer, c *wire.Call) *reader { return &reader{answer: a, call: c} }

func (r *reader) finished() bool { return r.reason != "" }

func (r *reader) read(raw []byte) error {
	var c chunk
	if err := json.Unmarshal(raw, &c); err != nil {
		return &model.Error{Code: event.CodeModelError, Retryable: true, Err: err,
			Message: "the model server sent a chunk that cannot be read: check that base_url speaks chat completions"}
	}
	if c.Usage != nil {
		r.usage = event.Usage{InputTokens: c.Usage.PromptTokens, OutputTokens: c.Usage.CompletionTokens,
			ReasoningTokens: c.Usage.CompletionDetails.Reasoning, CachedInputTokens: c.Usage.PromptDetails.Cached}.Bounded()
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		r.delta(choice.Delta)
		if choice.FinishReason != "" {
			r.reason = choice.FinishReason
			r.call.Finished()
		}
	}
	return nil
}

func (r *reader) delta(d delta) {
	thought := stringOf(d.ReasoningContent)
	if thought == "" {
		thought = stringOf(d.Reasoning) // some servers send both: the same text
	}
	r.answer.Reasoning(thought)
	r.content(d.Content)
	if d.Refusal != "" {
		r.refused = true
		r.answer.Text(d.Refusal)
	}
	for _, c := range d.ToolCalls {
		r.callDelta(c)
	}
	if d.FunctionCall != nil {
		r.callDelta(callDelta{Index: new(int), Function: *d.FunctionCall})
	}
}

func (r *reader) content(raw json.RawMessage) {
	if len(raw) == 0 || raw[0] != '[' {
		r.answer.Text(stringOf(raw))
		return
	}
	var list []piece
	_ = json.Unmarshal(raw, &list)
	for _, p := range list {
		for _, thought := range p.Thinking {
			r.answer.Reasoning(thought.Text)
		}
		r.answer.Text(p.Text)
	}
}

func stringOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// end says how a stream without error ended.
func (r *reader) end() (model.Result, error) {
	if !r.finished() {
		return model.Result{}, wire.Truncated()
	}
	for _, c := range r.calls {
		r.begin(c)
	}
	reason := r.answer.Finish(r.finishReason())
	return model.Result{FinishReason: reason, Usage: r.usage}, r.answer.Err()
}

func (r *reader) finishReason() event.FinishReason {
	switch {
	case r.refused || r.reason == "content_filter":
		return event.FinishFilter
	case r.reason == "length":
		return event.FinishLength
	case r.reason == "tool_calls" || r.reason == "function_call":
		return event.FinishToolCalls
	}
	return event.FinishStop
}

// An openCall is a call as it grows. It begins in the answer once its name is
// known; arguments that came before wait.
type openCall struct {
	wire    int // the server's index
	id      string
	name    string
	args    string
	ordinal int // in the answer, -1 before it begins
}

// callDelta adds a piece to its call. Which one that is has to be guessed with
// servers that leave out the index or the id, or number every call 0.
func (r *reader) callDelta(d callDelta) {
	args := argsOf(d.Function.Arguments)
	c := r.find(d, args)
	if c == nil {
		c = &openCall{wire: wireIndex(d, len(r.calls)), ordinal: -1}
		r.calls = append(r.calls, c)
	}
	if c.id == "" {
		c.id = d.ID
	}
	if c.name == "" {
		c.name = d.Function.Name
	}
	c.args += args
	if c.ordinal >= 0 {
		r.answer.Args(c.ordinal, args)
	} else if c.name != "" {
		r.begin(c)
	}
}

func wireIndex(d callDelta, next int) int {
	if d.Index != nil {
		return *d.Index
	}
	return next
}

// find returns the call that the delta continues, or nil for a new one.
func (r *reader) find(d callDelta, args string) *openCall {
	if len(r.calls) == 0 {
		return nil
	}
	c := r.calls[len(r.calls)-1]
	if d.Index != nil {
		if c = r.byIndex(*d.Index); c == nil {
			return nil
		}
	}
	switch {
	case d.ID != "" && c.id != "":
		return r.sameID(c, d.ID)
	case d.ID != "" || d.Function.Name == "" || c.name == "":
		return c
	case json.Valid([]byte(c.args)) && (d.Index == nil || args != "" || d.Function.Name != c.name):
		return nil // the one before is whole
	}
	return c
}

// byIndex finds the latest call of the index.
func (r *reader) byIndex(index int) *openCall {
	for i := len(r.calls) - 1; i >= 0; i-- {
		if r.calls[i].wire == index {
			return r.calls[i]
		}
	}
	return nil
}

func (r *reader) sameID(c *openCall, id string) *openCall {
	if c.id == id {
		return c
	}
	for _, other := range r.calls {
		if other.id == id {
			return other
		}
	}
	return nil
}

func (r *reader) begin(c *openCall) {
	if c.ordinal < 0 {
		c.ordinal = r.answer.Start(c.id, c.name)
		r.answer.Args(c.ordinal, c.args)
	}
}

func argsOf(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' {
		return stringOf(raw)
	}
	return string(raw)
}
