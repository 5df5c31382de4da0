package aisdk

import (
	"strconv"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// chunk begins a chunk.
func chunk(kind string, size int) dialect.Object {
	return append(append(append(dialect.NewObject(size), `"type":"`...), kind...), '"')
}

// done is what a stream of the protocol ends with.
var done = dialect.Message{Data: []byte("[DONE]")}

func (x *encoder) runStarted(e event.Event, d event.RunStartedData) []dialect.Message {
	x.forget()
	return start(e).Value("messageMetadata", startOf{e.SessionID, e.RunID, e.TraceID, d.Agent}).One("")
}

type startOf struct {
	SessionID string `json:"session_id"`
	RunID     string `json:"run_id"`
	TraceID   string `json:"trace_id,omitempty"`
	Agent     string `json:"agent"`
}

func start(e event.Event) dialect.Object {
	return chunk("start", 160).Text("messageId", e.RunID)
}

// runStatus tells of a run that is parked, and of one that goes on.
func (x *encoder) runStatus(e event.Event, d event.RunStatusData) []dialect.Message {
	parks := d.ExpiresAt != nil
	if parks == x.parked {
		return nil
	}
	x.parked = parks
	if parks {
		return []dialect.Message{chunk("finish", 0).Text("finishReason", "tool-calls").Message(""), done}
	}
	return start(e).One("")
}

func (x *encoder) runCompleted(_ event.Event, d event.RunCompletedData) []dialect.Message {
	f := chunk("finish", 256).Text("finishReason", finishReason(d.FinishReason)).Value("messageMetadata", ending{event.Completed, d.FinishReason, "", &d.Usage})
	return append(x.endText(), f.Message(""), done)
}

type ending struct {
	Status       event.Status       `json:"status"`
	FinishReason event.FinishReason `json:"finish_reason,omitempty"`
	Reason       string             `json:"reason,omitempty"`
	Usage        *event.Usage       `json:"usage,omitempty"`
}

func finishReason(r event.FinishReason) string {
	switch r {
	case event.FinishStop:
		return "stop"
	case event.FinishLength:
		return "length"
	case event.FinishFilter:
		return "content-filter"
	case event.FinishStopped:
		return "interrupted"
	}
	return "other"
}

func (x *encoder) runFailed(_ event.Event, d event.RunFailedData) []dialect.Message {
	return append(x.endText(), chunk("error", 0).Text("errorText", string(d.Code)+": "+d.Message).Message(""))
}

// runCancelled also finishes: a client that sends by itself once its tools have
// results must not do so now.
func (x *encoder) runCancelled(_ event.Event, d event.RunCancelledData) []dialect.Message {
	f := chunk("finish", 256).Text("finishReason", "interrupted").Value("messageMetadata", ending{event.Cancelled, "", d.Reason, d.Usage})
	return append(x.endText(), f.Message(""), chunk("abort", 0).Some("reason", d.Reason).Message(""), done)
}

func (x *encoder) stepStarted(event.Event) []dialect.Message {
	for _, d := range x.inStep {
		x.placed[d.key] = true
	}
	x.inStep = nil
	return append(x.endText(), chunk("start-step", 0).Message(""))
}

func (x *encoder) stepCompleted(event.Event) []dialect.Message {
	return append(x.endText(), chunk("finish-step", 0).Message(""))
}

// textDelta begins a text part if none is open.
func (x *encoder) textDelta(e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil
	}
	if x.part != "" && dialect.Quotes(id, x.text) {
		return chunk("text-delta", len(e.Data)).Text("id", x.part).Raw("delta", text).One("")
	}
	list := x.endText()
	name := dialect.Unquoted(id)
	if name != x.text {
		x.text, x.texts = name, 0
	}
	x.part = name
	if x.texts > 0 {
		x.part += "." + strconv.Itoa(x.texts)
	}
	x.texts++
	return append(list, chunk("text-start", 0).Text("id", x.part).Message(""),
		chunk("text-delta", len(e.Data)).Text("id", x.part).Raw("delta", text).Message(""))
}

// endText closes the text part that is open: parts stand in the order in which
// they begin.
func (x *encoder) endText() []dialect.Message {
	if x.part == "" {
		return nil
	}
	id := x.part
	x.part = ""
	return chunk("text-end", 0).Text("id", id).One("")
}

// messageCompleted closes an answer. What somebody has said while the run was
// under way is told; what the run began with, its client has.
func (x *encoder) messageCompleted(e event.Event, d event.MessageCompletedData) []dialect.Message {
	if d.Role == event.RoleAssistant && e.CommandID == "" {
		return x.endText()
	}
	if d.Role != event.RoleUser || e.CommandID == e.RunID+".invoke" {
		return nil
	}
	parts := []steered{}
	for _, p := range d.Parts {
		switch {
		case p.Internal:
		case p.Type == event.PartText:
			parts = append(parts, steered{Type: "text", Text: &p.Text})
		default:
			parts = append(parts, steered{Type: "file", MediaType: mediaType(p.MediaType), URL: p.URL, Filename: p.Name})
		}
	}
	return append(x.endText(), chunk("steering-message", 256).Text("id", d.MessageID).Value("parts", parts).Message(""))
}

type steered struct {
	Type      string  `json:"type"`
	Text      *string `json:"text,omitempty"`
	MediaType string  `json:"mediaType,omitempty"`
	URL       string  `json:"url,omitempty"`
	Filename  string  `json:"filename,omitempty"`
}

func mediaType(t string) string {
	if t == "" {
		return "application/octet-stream"
	}
	return t
}

// discarded takes the step back, and says again what else stood in it.
func (x *encoder) discarded(event.Event) []dialect.Message {
	x.part, x.text, x.texts = "", "", 0
	list := []dialect.Message{chunk("reset-step", 0).Message("")}
	for _, d := range x.inStep {
		list = append(list, d.Message)
	}
	return list
}

func (x *encoder) reasoningStarted(_ event.Event, d event.ReasoningStartedData) []dialect.Message {
	return append(x.endText(), chunk("reasoning-start", 0).Text("id", d.ReasoningID).Message(""))
}

func (x *encoder) reasoningDelta(e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil
	}
	return chunk("reasoning-delta", len(e.Data)).Raw("id", id).Raw("delta", text).One("")
}

func (x *encoder) reasoningCompleted(_ event.Event, d event.ReasoningCompletedData) []dialect.Message {
	return chunk("reasoning-end", 0).Text("id", d.ReasoningID).One("")
}
