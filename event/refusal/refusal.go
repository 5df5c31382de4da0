// Package refusal says what servers of language models refuse of a conversation.
// It knows the rules of both protocols, and what the stricter servers ask besides:
// users and assistants in turn, the assistant not last, no member that they do not
// know. It shares nothing with what builds requests, which is held to it.
package refusal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// list reads a messages array.
func list[M any](raw []byte) (messages []M, err error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&messages); err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, errors.New("there is no message")
	}
	return messages, nil
}

// calls are those of a conversation, up to one of its messages.
type calls struct {
	open map[string]bool // they wait for their result
	seen map[string]bool
}

func newCalls() *calls { return &calls{map[string]bool{}, map[string]bool{}} }

var (
	ids   = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`)
	names = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

func (c *calls) begin(id, name, args string) error {
	if c.seen[id] || !ids.MatchString(id) || !names.MatchString(name) {
		return fmt.Errorf("call %q of %q: ids and names are words, and an id is there once", id, name)
	}
	c.seen[id], c.open[id] = true, true
	return object(args)
}

func (c *calls) end(id, result string) error {
	if !c.open[id] || blank(result) {
		return fmt.Errorf("a result of call %q, which is not open, or without text", id)
	}
	delete(c.open, id)
	return nil
}

// closed refuses whoever speaks while calls have no result.
func (c *calls) closed() error {
	if len(c.open) > 0 {
		return fmt.Errorf("%d calls have no result", len(c.open))
	}
	return nil
}

var (
	escapes  = regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\\\`)
	loneHalf = regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}`)
)

// object refuses arguments that are no JSON object, or hold half a character.
func object(args string) error {
	var o map[string]any
	if err := json.Unmarshal([]byte(args), &o); err != nil || o == nil {
		return fmt.Errorf("arguments %.80q are no object", args)
	}
	if loneHalf.MatchString(escapes.ReplaceAllString(args, "")) {
		return fmt.Errorf("arguments %.80q hold half a character", args)
	}
	return nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
