package rpc

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Folds: whether a delta ends a sentence depends on the text before it.
func (d Dialect) Folds(e event.Event) bool {
	if !d.Sentences || e.Internal {
		return false
	}
	return e.Type == event.TextDelta && mayEnd(e.Data) || e.Type == event.MessageCompleted
}

// mayEnd reports whether the data of a delta holds what a sentence ends with: a
// space after it, or a full stop that needs none.
func mayEnd(data []byte) bool {
	_, text, _ := dialect.Delta(data)
	return bytes.ContainsAny(text, " \\。！？\u0085\u00a0\u2003\u3000")
}

// EventAfter tells the sentences that a delta completes, and with the whole
// message what is left of it.
func (d Dialect) EventAfter(before *event.Session, e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Type == event.TextDelta {
		id, delta, ok := dialect.Delta(e.Data)
		if !ok {
			return nil
		}
		message := dialect.Unquoted(id)
		had := before.TextSoFar(message)
		return sentences(e, message, had, had+dialect.Unquoted(delta))
	}
	list := encoders[e.Type](e)
	var m event.MessageCompletedData
	if e.Into(&m) != nil || m.Role != event.RoleAssistant {
		return list
	}
	text := before.TextSoFar(m.MessageID)
	if left := text[ended(text):]; left != "" {
		return append([]dialect.Message{sentence(e, m.MessageID, left, firstID(e))}, list...)
	}
	return list
}

// sentences tells in one line what was completed since the last one.
func sentences(e event.Event, id, had, has string) []dialect.Message {
	from, to := ended(had), ended(has)
	if from >= to {
		return nil
	}
	return []dialect.Message{sentence(e, id, has[from:to], e.ID)}
}

func sentence(e event.Event, messageID, text, id string) dialect.Message {
	return beginAs("message_before", e, id).Text("message_id", messageID).Text("delta", text).Close().Message("")
}

// ended is the length of the whole sentences that a text begins with: through
// the space after a full stop, a line end, or a full stop of East Asian writing.
func ended(text string) int {
	end, stopped := 0, false
	for i, r := range text {
		switch {
		case r == '\n' || strings.ContainsRune("。！？", r), unicode.IsSpace(r) && (stopped || end == i && i > 0):
			end = i + utf8.RuneLen(r)
			stopped = false
		case strings.ContainsRune(".!?…", r):
			stopped = true
		case strings.ContainsRune(`"'”’)]»`, r): // may follow a full stop
		default:
			stopped = false
		}
	}
	return end
}
