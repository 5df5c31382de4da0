package wire

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/event"
)

// Body encodes a request: the members of rest, and one, which is JSON already and
// goes in as it is, for it may be most of a long conversation. A member of the
// same name in rest wins.
func Body(rest map[string]any, name string, value json.RawMessage) []byte {
	b := event.Encode(rest)
	if _, own := rest[name]; own {
		return b
	}
	b = b[:len(b)-1]
	if len(rest) > 0 {
		b = append(b, ',')
	}
	b = append(append(b, event.Encode(name)...), ':')
	return append(append(b, value...), '}')
}
