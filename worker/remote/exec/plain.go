package exec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// plain refuses a line of which encoding/json would silently take something else
// than what was written: bytes that are not UTF-8, a member that is there twice, at
// whatever depth. What is no JSON is left to the decoder to tell.
func plain(line []byte) error {
	for at := 0; at < len(line); {
		r, n := utf8.DecodeRune(line[at:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("is not UTF-8: byte %d is 0x%02x", at+1, line[at])
		}
		at += n
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	var open []scope
	for {
		token, err := dec.Token()
		if err != nil {
			return nil //nolint:nilerr // the end, or malformed: the decoder says so
		}
		switch name, isText := token.(string); {
		case token == json.Delim('{'):
			open = append(open, scope{members: map[string]bool{}, named: true})
			continue
		case token == json.Delim('['):
			open = append(open, scope{})
			continue
		case token == json.Delim('}'), token == json.Delim(']'):
			open = open[:len(open)-1]
		case isText && len(open) > 0 && open[len(open)-1].named:
			if open[len(open)-1].repeats(name, len(open) == 1) {
				return fmt.Errorf("has the member %q twice", name)
			}
			continue
		}
		if len(open) > 0 { // a value has ended
			in := &open[len(open)-1]
			in.named = in.members != nil
		}
	}
}

// A scope is an object or a list that is being read.
type scope struct {
	members map[string]bool // nil in a list
	named   bool            // the next text is the name of a member
}

// repeats notes a member. Names of the line itself are compared as encoding/json
// does, whatever their case.
func (s *scope) repeats(name string, anyCase bool) bool {
	s.named = false
	if anyCase {
		name = strings.ToLower(strings.ToUpper(name))
	}
	was := s.members[name]
	s.members[name] = true
	return was
}
