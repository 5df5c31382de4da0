package openai

import (
	"encoding/json"
	"strconv"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// An item is one of the response's output.
type item struct {
	kind    string
	id      string
	index   int
	open    bool
	attempt bool            // of the answer that is being written
	message string          // else: the answer it belongs to
	dropped bool            // it is no part of the response in the end
	final   json.RawMessage // once it is done
}

// add opens an item.
func (r *Response) add(kind, id string, body any) *item {
	r.begin()
	i := &item{kind: kind, id: id, index: len(r.items), open: true, attempt: true}
	r.items = append(r.items, i)
	r.byID[id] = i
	r.emit("response.output_item.added", r.of("response.output_item.added", i, 256).Value("item", body))
	return i
}

// of begins a message about an item; those of its parts name it besides.
func (r *Response) of(kind string, i *item, size int) dialect.Object {
	o := append(r.start(kind, size), `,"output_index":`...)
	return strconv.AppendUint(o, uint64(i.index), 10) //nolint:gosec // an index
}

func (r *Response) about(kind string, i *item, size int) dialect.Object {
	return r.of(kind, i, size+len(i.id)).Text("item_id", i.id)
}

// done closes an item.
func (r *Response) done(i *item, body any) {
	i.open, i.final = false, event.Encode(body)
	r.kept += len(i.final)
	r.emit("response.output_item.done", r.of("response.output_item.done", i, len(i.final)).Raw("item", i.final))
}

// drop closes an item that is no part of the response.
func (r *Response) drop(i *item, body any) {
	i.dropped = true
	if i.open {
		r.done(i, body)
	}
}

type (
	messageItem struct {
		Type    string     `json:"type"`
		ID      string     `json:"id"`
		Status  string     `json:"status"`
		Role    string     `json:"role"`
		Content []textPart `json:"content"`
	}
	textPart struct {
		Type        string   `json:"type"`
		Annotations []string `json:"annotations"`
		Logprobs    []string `json:"logprobs"`
		Text        string   `json:"text"`
	}
	reasoningItem struct {
		Type    string        `json:"type"`
		ID      string        `json:"id"`
		Summary []summaryPart `json:"summary"`
	}
	summaryPart struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	functionCall struct {
		Type   string `json:"type"`
		ID     string `json:"id"`
		CallID string `json:"call_id"`
		Name   string `json:"name"`
		Args   string `json:"arguments"`
		Status string `json:"status"`
	}
	mcpCall struct {
		Type     string  `json:"type"`
		ID       string  `json:"id"`
		Server   string  `json:"server_label"`
		Name     string  `json:"name"`
		Args     string  `json:"arguments"`
		Approval *string `json:"approval_request_id"`
		Output   *string `json:"output"`
		Error    *string `json:"error"`
		Status   string  `json:"status"`
	}
	approvalRequest struct {
		Type   string `json:"type"`
		ID     string `json:"id"`
		Server string `json:"server_label"`
		Name   string `json:"name"`
		Args   string `json:"arguments"`
	}
)

func outputText(text string) textPart {
	return textPart{"output_text", []string{}, []string{}, text}
}

func message(id, status string, content ...textPart) messageItem {
	if content == nil {
		content = []textPart{}
	}
	return messageItem{"message", id, status, "assistant", content}
}

// textDelta opens the message with its first text.
func (r *Response) textDelta(e event.Event) {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return
	}
	i := r.byID[string(id[1:len(id)-1])]
	if i == nil {
		name := dialect.Unquoted(id)
		i = r.add("message", name, message(name, "in_progress"))
		r.byID[string(id[1:len(id)-1])] = i
		r.emit("response.content_part.added", r.about("response.content_part.added", i, 128).Value("content_index", 0).Value("part", outputText("")))
	}
	o := append(r.about("response.output_text.delta", i, len(text)+64), `,"content_index":0,"logprobs":[]`...)
	r.emit("response.output_text.delta", o.Raw("delta", text))
}

func (r *Response) endText(i *item, text, status string, content ...textPart) {
	r.emit("response.output_text.done", r.about("response.output_text.done", i, len(text)).Value("content_index", 0).Value("logprobs", []string{}).Text("text", text))
	r.emit("response.content_part.done", r.about("response.content_part.done", i, len(text)+64).Value("content_index", 0).Value("part", outputText(text)))
	r.done(i, message(i.id, status, content...))
}

// messageCompleted closes an answer; it stands from now on, and its calls with it.
func (r *Response) messageCompleted(e event.Event, d event.MessageCompletedData) {
	if d.Role != event.RoleAssistant || e.CommandID != "" {
		return
	}
	if i := r.byID[d.MessageID]; i != nil && i.open {
		text := event.TextOf(d.Parts)
		r.endText(i, text, "completed", outputText(text))
	}
	for _, i := range r.items {
		if i.attempt {
			i.attempt, i.message = false, d.MessageID
		}
	}
}

// discarded takes back what is being written, or an answer of an agent that lives
// elsewhere and is asked anew.
func (r *Response) discarded(_ event.Event, d event.MessageDiscardedData) { r.dropAll(d.MessageID) }

// dropAll closes what belongs to an answer, or is being written, and takes it out
// of the response.
func (r *Response) dropAll(messageID string) {
	for _, i := range r.items {
		mine := i.attempt || messageID != "" && i.message == messageID
		if !mine || i.dropped {
			continue
		}
		switch i.kind {
		case "message":
			i.dropped = true
			if i.open {
				r.endText(i, "", "incomplete")
			}
		case "reasoning":
			r.drop(i, reasoningItem{i.kind, i.id, []summaryPart{}})
		default:
			r.drop(i, r.callItem(i, "incomplete"))
		}
	}
}

func (r *Response) reasoningStarted(_ event.Event, d event.ReasoningStartedData) {
	i := r.add("reasoning", d.ReasoningID, reasoningItem{"reasoning", d.ReasoningID, []summaryPart{}})
	r.emit("response.reasoning_summary_part.added", r.about("response.reasoning_summary_part.added", i, 64).Value("summary_index", 0).Value("part", summaryPart{"summary_text", ""}))
}

func (r *Response) reasoningDelta(e event.Event) {
	i, text := r.delta(e)
	if i == nil {
		return
	}
	const kind = "response.reasoning_summary_text.delta"
	r.emit(kind, r.about(kind, i, len(text)).Value("summary_index", 0).Raw("delta", text))
}

func (r *Response) reasoningCompleted(_ event.Event, d event.ReasoningCompletedData) {
	i := r.byID[d.ReasoningID]
	if i == nil || !i.open {
		return
	}
	part := summaryPart{"summary_text", d.Text}
	r.emit("response.reasoning_summary_text.done", r.about("response.reasoning_summary_text.done", i, len(d.Text)).Value("summary_index", 0).Text("text", d.Text))
	r.emit("response.reasoning_summary_part.done", r.about("response.reasoning_summary_part.done", i, len(d.Text)).Value("summary_index", 0).Value("part", part))
	r.done(i, reasoningItem{"reasoning", i.id, []summaryPart{part}})
}
