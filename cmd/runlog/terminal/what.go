package terminal

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// facts are the fields by which a line tells what an event is about; any event
// has some of them.
type facts struct {
	Agent       string             `json:"agent"`
	Worker      string             `json:"worker"`
	Attempt     int                `json:"attempt"`
	Status      event.Status       `json:"status"`
	Step        int                `json:"step"`
	Model       string             `json:"model"`
	Finish      event.FinishReason `json:"finish_reason"`
	MessageID   string             `json:"message_id"`
	ReasoningID string             `json:"reasoning_id"`
	CallID      string             `json:"call_id"`
	ArtifactID  string             `json:"artifact_id"`
	Name        string             `json:"name"`
	Role        event.Role         `json:"role"`
	Parts       []event.Part       `json:"parts"`
	Text        string             `json:"text"`
	Args        string             `json:"args"`
	Delta       string             `json:"delta"`
	Content     []event.Part       `json:"content"`
	Progress    float64            `json:"progress"`
	Total       float64            `json:"total"`
	Code        event.Code         `json:"code"`
	Message     string             `json:"message"`
	Outcome     event.Outcome      `json:"outcome"`
	Reason      string             `json:"reason"`
	By          string             `json:"by"`
	Bytes       int64              `json:"bytes"`
	URL         string             `json:"url"`
	Kind        string             `json:"kind"`
	Decision    string             `json:"decision"`
	Usage       *event.Usage       `json:"usage"`
}

func factsOf(e event.Event) (f facts) {
	_ = json.Unmarshal(e.Data, &f) // what does not fit stays empty
	return f
}

// deltaOf returns the text that a delta belongs to and how many bytes it adds.
func deltaOf(e event.Event) (id string, size int, ok bool) {
	switch e.Type {
	case event.TextDelta, event.ReasoningDelta, event.ToolArgsDelta:
		f := factsOf(e)
		return f.MessageID + f.ReasoningID + f.CallID, len(f.Delta), true
	}
	return "", 0, false
}

// span names what an event opens or closes.
func span(e event.Event) (key string, opens bool) {
	f := factsOf(e)
	switch e.Type {
	case event.RunStarted:
		return "run " + e.RunID, true
	case event.RunCompleted, event.RunFailed, event.RunCancelled:
		return "run " + e.RunID, false
	case event.StepStarted, event.StepCompleted:
		return fmt.Sprintf("step %s %d", e.RunID, f.Step), e.Type == event.StepStarted
	case event.MessageStarted, event.MessageCompleted, event.MessageDiscarded:
		return "message " + f.MessageID, e.Type == event.MessageStarted
	case event.ReasoningStarted, event.ReasoningCompleted:
		return "reasoning " + f.ReasoningID, e.Type == event.ReasoningStarted
	case event.ToolRunning, event.ToolCompleted, event.ToolFailed:
		return "tool " + f.CallID, e.Type == event.ToolRunning
	case event.ArtifactStarted, event.ArtifactCompleted:
		return "artifact " + f.ArtifactID, e.Type == event.ArtifactStarted
	}
	return "", false
}

// what tells an event in a line.
func what(e event.Event) string {
	f := factsOf(e)
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	family, _, _ := strings.Cut(string(e.Type), ".")
	switch family {
	case "message", "reasoning":
		add("%s%s", f.MessageID, f.ReasoningID)
		if f.Role != "" {
			add("%s", f.Role)
		}
		if text := f.Text + event.TextOf(f.Parts); text != "" {
			add("%q", oneLine(text, 60))
		}
	case "tool", "approval":
		add("%s", f.CallID)
	case "artifact":
		add("%s", f.ArtifactID)
	}
	return strings.Join(append(words, details(f)...), " ")
}

// details are the fields that need no context, in a fixed order.
func details(f facts) (words []string) {
	add := func(on bool, format string, args ...any) {
		if on {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(f.Name != "", "%s", f.Name)
	add(f.Agent != "", "%s", f.Agent)
	add(f.Worker != "", "worker %s", f.Worker)
	add(f.Step > 0, "%d", f.Step)
	add(f.Model != "", "%s", f.Model)
	add(f.Status != "", "%s", f.Status)
	add(f.Attempt > 1, "attempt %d", f.Attempt)
	add(f.Kind != "", "%s", f.Kind)
	add(f.Decision != "", "%s", f.Decision)
	add(f.Args != "", "%s", oneLine(f.Args, 60))
	add(len(f.Content) > 0, "%s", contentLine(f.Content, 60))
	add(f.Total > 0, "%g/%g", f.Progress, f.Total)
	add(f.Outcome != "", "%s", f.Outcome)
	add(f.Code != "", "%s", f.Code)
	add(f.Message != "", "%s", f.Message)
	add(f.By != "", "by %s", f.By)
	add(f.Reason != "", "%s", f.Reason)
	add(f.Bytes > 0, "%s", size(f.Bytes))
	add(f.URL != "", "%s", f.URL)
	add(f.Finish != "", "%s", f.Finish)
	add(f.Usage != nil, "%s", used(f.Usage))
	return words
}
