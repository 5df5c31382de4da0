package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/internal/wire"
	"github.com/runlog-dev/runlog/worker/model"
)

// streamed is what runlog reads of the events of a message's stream.
type streamed struct {
	Type    string
	Index   int
	Message struct{ Usage usage }
	Block   block `json:"content_block"`
	Delta   struct {
		Type, Text, Thinking, Signature string
		PartialJSON                     string `json:"partial_json"`
		StopReason                      string `json:"stop_reason"`
	}
	Usage usage
}

type block struct {
	Type, Text, Thinking, Signature, Data string
	ID, Name                              string
	Input                                 json.RawMessage
}

// usage counts what was read from and written to the cache apart from the rest
// of the input. What message_delta leaves out stays as message_start said.
type usage struct {
	Input         *int64 `json:"input_tokens"`
	CacheRead     *int64 `json:"cache_read_input_tokens"`
	CacheCreation *int64 `json:"cache_creation_input_tokens"`
	Output        *int64 `json:"output_tokens"`
	Details       struct {
		Thinking *int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

func (u *usage) update(o usage) {
	for _, f := range []struct{ to, from **int64 }{
		{&u.Input, &o.Input}, {&u.CacheRead, &o.CacheRead}, {&u.CacheCreation, &o.CacheCreation},
		{&u.Output, &o.Output}, {&u.Details.Thinking, &o.Details.Thinking},
	} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
}

func (u *usage) event() event.Usage {
	read := count(u.CacheRead)
	return event.Usage{InputTokens: count(u.Input) + read + count(u.CacheCreation), CachedInputTokens: read,
		OutputTokens: count(u.Output), ReasoningTokens: count(u.Details.Thinking)}.Bounded()
}

// count is a count that sums of do not wrap.
func count(n *int64) int64 {
	if n == nil {
		return 0
	}
	return min(max(*n, 0), event.MaxTokens)
}

// A reader turns the events of one stream into an answer.
type reader struct {
	answer  *wire.Answer
	call    *wire.Call
	open    map[int]*openBlock // by the server's index
	usage   usage
	reason  string
	stopped bool // message_stop has come
}

type openBlock struct {
	block
	call      int // ordinal, of tool_use
	hasArgs   bool
	signature string
}

func newReader(a *wire.Answer, c *wire.Call) *reader {
	return &reader{answer: a, call: c, open: map[int]*openBlock{}}
}

func (r *reader) read(raw []byte) error {
	var e streamed
	if err := json.Unmarshal(raw, &e); err != nil {
		return &model.Error{Code: event.CodeModelError, Retryable: true, Err: err,
			Message: "the model server sent an event that cannot be read: check that base_url speaks the Messages protocol"}
	}
	switch e.Type {
	case "message_start":
		r.usage.update(e.Message.Usage)
	case "content_block_start":
		r.begin(e.Index, e.Block)
	case "content_block_delta":
		r.delta(e)
	case "content_block_stop":
		r.endBlock(e.Index)
	case "message_delta":
		r.usage.update(e.Usage)
		if e.Delta.StopReason != "" {
			r.reason = e.Delta.StopReason
			r.call.Finished()
		}
	case "message_stop":
		r.stopped = true
	}
	return nil
}

func (r *reader) begin(index int, b block) {
	o := &openBlock{block: b, signature: b.Signature}
	r.open[index] = o
	switch b.Type {
	case "text":
		r.answer.Text(b.Text)
	case "thinking":
		r.answer.Reasoning(b.Thinking)
	case "tool_use":
		o.call = r.answer.Start(b.ID, b.Name)
	}
}

func (r *reader) delta(e streamed) {
	o := r.open[e.Index]
	if o == nil {
		return
	}
	switch e.Delta.Type {
	case "text_delta":
		r.answer.Text(e.Delta.Text)
	case "thinking_delta":
		r.answer.Reasoning(e.Delta.Thinking)
	case "signature_delta":
		o.signature += e.Delta.Signature
	case "input_json_delta":
		if o.Type == "tool_use" && e.Delta.PartialJSON != "" {
			o.hasArgs = true
			r.answer.Args(o.call, e.Delta.PartialJSON)
		}
	}
}

// endBlock closes a block. Some servers send a call's input whole with its start.
func (r *reader) endBlock(index int) {
	o := r.open[index]
	if o == nil {
		return
	}
	delete(r.open, index)
	switch o.Type {
	case "thinking":
		r.answer.EndReasoning(o.signature)
	case "redacted_thinking":
		r.answer.EndReasoning(event.RedactedThinking + o.Data)
	case "tool_use":
		if in := strings.TrimSpace(string(o.Input)); !o.hasArgs && in != "null" {
			r.answer.Args(o.call, in)
		}
	}
}

// end says how a stream without error ended.
func (r *reader) end() (model.Result, error) {
	if !r.stopped || r.reason == "" {
		return model.Result{}, wire.Truncated()
	}
	reason := r.answer.Finish(finishReason(r.reason))
	return model.Result{FinishReason: reason, Usage: r.usage.event()}, r.answer.Err()
}

func finishReason(stop string) event.FinishReason {
	switch stop {
	case "tool_use":
		return event.FinishToolCalls
	case "max_tokens", "model_context_window_exceeded":
		return event.FinishLength
	case "refusal":
		return event.FinishFilter
	}
	return event.FinishStop
}
