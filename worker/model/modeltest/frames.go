package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// A frame is one event of a stream. Deltas are what faults are counted in; last
// is the first of those that say how the answer ended.
type frame struct {
	text        string
	delta, last bool
}

func (s *Step) frames(p Protocol) []frame {
	if p == Anthropic {
		return s.anthropicFrames()
	}
	return s.openAIFrames()
}

// pieces cuts text into what one delta holds.
func (s *Step) pieces(text string) []string {
	size := s.Pace.Runes
	if size <= 0 {
		size = 8
	}
	var list []string
	for runes := []rune(text); len(runes) > 0; {
		n := min(size, len(runes))
		list = append(list, string(runes[:n]))
		runes = runes[n:]
	}
	return list
}

func encode(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

func (s *Step) errorFrame(p Protocol) string {
	if p == Anthropic {
		data := s.Error
		if data == "" {
			data = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
		}
		return "event: error\ndata: " + data + "\n\n"
	}
	data := s.Error
	if data == "" {
		data = `{"error":{"message":"the engine broke down","type":"server_error","code":null}}`
	}
	return "data: " + data + "\n\n"
}

type object = map[string]any

// openAIFrames are chat.completion.chunks.
func (s *Step) openAIFrames() []frame {
	var list []frame
	add := func(delta object, finish any, isDelta bool) {
		c := object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test",
			"choices": []any{object{"index": 0, "delta": delta, "finish_reason": finish}}}
		list = append(list, frame{text: "data: " + encode(c) + "\n\n", delta: isDelta, last: finish != nil})
	}
	add(object{"role": "assistant", "content": ""}, nil, false)
	for _, piece := range s.pieces(s.Reasoning) {
		add(s.openAIThought(piece), nil, true)
	}
	for _, piece := range s.pieces(s.Text) {
		add(object{"content": piece}, nil, true)
	}
	for _, piece := range s.pieces(s.Refusal) {
		add(object{"refusal": piece}, nil, true)
	}
	for _, c := range s.openAICalls() {
		add(object{"tool_calls": []any{c}}, nil, true)
	}
	add(object{}, s.finish("stop", "tool_calls"), false)
	return append(list, s.openAITail()...)
}

func (s *Step) finish(stop, calls string) string {
	switch {
	case s.Finish != "":
		return s.Finish
	case len(s.Calls) > 0:
		return calls
	}
	return stop
}

func (s *Step) openAIThought(piece string) object {
	switch {
	case s.has(PlainReasoning):
		return object{"reasoning": piece}
	case s.has(BothReasoning):
		return object{"reasoning": piece, "reasoning_content": piece}
	}
	return object{"reasoning_content": piece}
}

func (s *Step) openAITail() []frame {
	var list []frame
	if !s.has(NoUsage) {
		u := object{"prompt_tokens": s.Usage.Input, "completion_tokens": s.Usage.Output, "total_tokens": s.Usage.Input + s.Usage.Output,
			"prompt_tokens_details":     object{"cached_tokens": s.Usage.Cached},
			"completion_tokens_details": object{"reasoning_tokens": s.Usage.Reasoning}}
		list = append(list, frame{text: "data: " + encode(object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": []any{}, "usage": u}) + "\n\n"})
	}
	if !s.has(NoDone) {
		list = append(list, frame{text: "data: [DONE]\n\n"})
	}
	return list
}

// openAICalls are the tool call deltas in the order they are sent.
func (s *Step) openAICalls() []object {
	perCall := make([][]object, len(s.Calls))
	for i, c := range s.Calls {
		perCall[i] = s.openAICall(i, c)
	}
	var list []object
	if !s.has(Interleave) {
		for _, deltas := range perCall {
			list = append(list, deltas...)
		}
		return list
	}
	for row, more := 0, true; more; row++ {
		more = false
		for _, deltas := range perCall {
			if row < len(deltas) {
				list, more = append(list, deltas[row]), true
			}
		}
	}
	return list
}

func (s *Step) openAICall(i int, c Call) []object {
	head := object{"index": i, "id": callID(i, c), "type": "function"}
	s.oddCall(head)
	if s.has(WholeCalls) {
		f := object{"name": c.Name, "arguments": c.Args}
		if s.has(ObjectArgs) {
			f["arguments"] = json.RawMessage(c.Args)
		}
		head["function"] = f
		return []object{head}
	}
	head["function"] = object{"name": c.Name, "arguments": ""}
	list := []object{head}
	for _, piece := range s.pieces(c.Args) {
		d := object{"index": i}
		f := object{"arguments": piece}
		if s.has(RepeatID) {
			d["id"], f["name"] = callID(i, c), c.Name
		}
		d["function"] = f
		s.oddCall(d)
		list = append(list, d)
	}
	return list
}

func (s *Step) oddCall(d object) {
	if s.has(OmitIndex) {
		delete(d, "index")
	}
	if s.has(ZeroIndex) {
		d["index"] = 0
	}
	if s.has(NoID) {
		delete(d, "id")
	}
}

func callID(i int, c Call) string {
	if c.ID != "" {
		return c.ID
	}
	return fmt.Sprintf("call_%d", i+1)
}

// anthropicFrames are the events of one message.
func (s *Step) anthropicFrames() []frame {
	m := &messageFrames{step: s}
	m.add("message_start", object{"message": object{"id": "msg_1", "type": "message", "role": "assistant", "model": "test", "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": s.Usage.Input, "output_tokens": 1,
			"cache_read_input_tokens": s.Usage.Cached, "cache_creation_input_tokens": 0}}})
	if s.Reasoning != "" || s.Signature != "" {
		m.block(object{"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking", s.Reasoning)
	}
	if s.Redacted != "" {
		m.block(object{"type": "redacted_thinking", "data": s.Redacted}, "", "", "")
	}
	if s.Text != "" {
		m.block(object{"type": "text", "text": ""}, "text_delta", "text", s.Text)
	}
	for i, c := range s.Calls {
		m.call(i, c)
	}
	m.add("message_delta", object{"delta": object{"stop_reason": s.finish("end_turn", "tool_use"), "stop_sequence": nil},
		"usage": object{"output_tokens": s.Usage.Output, "output_tokens_details": object{"thinking_tokens": s.Usage.Reasoning}}})
	m.list[len(m.list)-1].last = true
	m.add("message_stop", object{})
	return m.list
}

type messageFrames struct {
	step  *Step
	list  []frame
	index int
}

func (m *messageFrames) add(kind string, data object) {
	data["type"] = kind
	m.list = append(m.list, frame{text: "event: " + kind + "\ndata: " + encode(data) + "\n\n", delta: kind == "content_block_delta"})
}

// block adds a content block whose text comes in deltas.
func (m *messageFrames) block(start object, deltaType, member, text string) {
	m.add("content_block_start", object{"index": m.index, "content_block": start})
	for _, piece := range m.step.pieces(text) {
		m.add("content_block_delta", object{"index": m.index, "delta": object{"type": deltaType, member: piece}})
	}
	if start["type"] == "thinking" && m.step.Signature != "" {
		m.add("content_block_delta", object{"index": m.index, "delta": object{"type": "signature_delta", "signature": m.step.Signature}})
	}
	m.add("content_block_stop", object{"index": m.index})
	m.index++
}

func (m *messageFrames) call(i int, c Call) {
	start := object{"type": "tool_use", "id": callID(i, c), "name": c.Name, "input": object{}}
	if m.step.has(WholeInput) {
		start["input"], c.Args = json.RawMessage(c.Args), ""
	}
	m.block(start, "input_json_delta", "partial_json", c.Args)
}
