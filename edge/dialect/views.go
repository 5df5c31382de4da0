package dialect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// Untold is what a dialect loses that tells some types alone.
func Untold(why string, told ...event.Type) map[event.Type]string {
	lost := map[event.Type]string{}
	for _, t := range event.Types {
		lost[t] = why
	}
	for _, t := range told {
		delete(lost, t)
	}
	return lost
}

// PublicData is an event's data without the parts of a message that clients do not
// see; nil if it cannot be read.
func PublicData(e event.Event) json.RawMessage {
	if e.Type != event.MessageCompleted || !bytes.Contains(e.Data, []byte(`"internal":true`)) {
		return e.Data
	}
	var d event.MessageCompletedData
	if e.Into(&d) != nil {
		return nil
	}
	shown := slices.DeleteFunc(d.Parts, func(p event.Part) bool { return p.Internal })
	if len(shown) == 0 {
		shown = []event.Part{}
	}
	d.Parts, d.SHA256 = shown, event.TextHash(shown)
	return event.Encode(d)
}

// Arguments are the object that a model wrote, empty if it wrote nothing, and a string
// where it wrote something else.
func Arguments(args string) json.RawMessage {
	switch args = strings.TrimSpace(args); {
	case args == "":
		return json.RawMessage("{}")
	case event.IsObject(args):
		return OneLine(json.RawMessage(args))
	}
	return event.Encode(args)
}

// OneLine is a JSON value as it stands, unless that is on several lines.
func OneLine(value json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(value, "\n\r\u2028\u2029") {
		return value
	}
	return json.RawMessage(unbroken.Replace(string(event.Encode(value))))
}

// unbroken escapes what JSON allows in strings though some take it for a line's end.
var unbroken = strings.NewReplacer("\u2028", `\u2028`, "\u2029", `\u2029`)

// Activities are the pieces of user interface of a session as they stand.
type Activities map[string]event.ActivityData

// Patched returns one of them as a change leaves it; false if there is none, or the
// change does not fit.
func (all Activities) Patched(d event.ActivityDeltaData) (event.ActivityData, bool) {
	a, ok := all[d.ActivityID]
	if !ok {
		return a, false
	}
	content, err := event.Patch(a.Content, d.Patch)
	if err != nil {
		return a, false
	}
	a.Content = content
	return a, true
}
