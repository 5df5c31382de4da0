package edge

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/event"
)

// checkUTF8 refuses a body that is not UTF-8: encoding/json would put U+FFFD where
// the text was, and nobody would hear of it.
func checkUTF8(body []byte) error {
	if utf8.Valid(body) {
		return nil
	}
	at := 0
	for r, n := utf8.DecodeRune(body); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(body[at:]) {
		at += n
	}
	line, column := place(body, int64(at)+1)
	return bad("", "line %d, column %d: the byte 0x%02x is not UTF-8; JSON is sent as UTF-8", line, column, body[at])
}

// checkDepth refuses JSON that nests deeper than what is logged may.
func checkDepth(body []byte) error {
	if event.Deep(body) {
		return bad("", "the JSON nests more than %d arrays and objects; send it flatter, or as a file to /v1/artifacts", event.MaxDepth)
	}
	return nil
}

// checkJSON refuses what is no JSON in UTF-8, or deeper than it is read, and says
// which and where. It is for protocols that answer in their own words.
func checkJSON(body []byte) error {
	if err := checkUTF8(body); err != nil {
		return err
	}
	if err := checkDepth(body); err != nil {
		return err
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return jsonProblem(body, 0, err)
	}
	return nil
}

// checkMembers refuses an object that has a member twice: parsers differ in which
// of them they take, so that a proxy may have looked at another one. Names of the
// outermost object, which is one of ours, are compared as encoding/json does,
// whatever their case. What is no JSON is left to the decoder to tell.
func checkMembers(body []byte) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	var open []scope
	for {
		token, err := dec.Token()
		if err != nil {
			return nil //nolint:nilerr // the end, or malformed: the decoder says so
		}
		in := last(open)
		name, isText := token.(string)
		switch {
		case token == json.Delim('{'):
			open = append(open, scope{names: map[string]bool{}, named: true})
		case token == json.Delim('['):
			open = append(open, scope{})
		case token == json.Delim('}'), token == json.Delim(']'):
			open = open[:len(open)-1]
			last(open).next()
		case isText && in.named:
			if in.repeats(name, len(open) == 1) {
				line, column := place(body, dec.InputOffset())
				return bad(name, "line %d, column %d: the member %q is there twice; send it once", line, column, name)
			}
			in.named = false
		default:
			in.next()
		}
	}
}

// A scope is an object or array that is being read.
type scope struct {
	names map[string]bool // nil in an array
	named bool            // the next text is a member's name
}

func last(open []scope) *scope {
	if len(open) == 0 {
		return &scope{}
	}
	return &open[len(open)-1]
}

// next is called after each value.
func (s *scope) next() { s.named = s.names != nil }

func (s *scope) repeats(name string, anyCase bool) bool {
	if anyCase {
		name = strings.ToLower(strings.ToUpper(name))
	}
	if s.names[name] {
		return true
	}
	s.names[name] = true
	return false
}
