package event

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// MaxDepth is how many arrays and objects may be nested in a JSON value that
// comes from outside: a request, a tool's result, arguments, what agents
// elsewhere say, a state as patches have made it. It leaves room for what such
// values are put into before maxNesting, where encoding/json gives up.
const MaxDepth = 512

const maxNesting = 10_000

// Valid reports whether b is JSON of at most MaxDepth.
func Valid(b []byte) bool { return validTo(b, MaxDepth) }

// IsObject reports whether text is Valid and a JSON object.
func IsObject(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && Valid([]byte(text))
}

// CheckJSON says why b is not Valid.
func CheckJSON(b []byte) error {
	switch {
	case Valid(b):
		return nil
	case Deep(b):
		return errDeep
	}
	return errors.New("it is not JSON")
}

var errDeep = fmt.Errorf("it nests more than %d arrays and objects", MaxDepth)

// CheckResult says why a result of a tool cannot be logged: what of it is JSON is
// not Valid.
func CheckResult(content []Part, structured json.RawMessage) error {
	if len(structured) > 0 {
		if err := CheckJSON(structured); err != nil {
			return fmt.Errorf("the structured result: %w", err)
		}
	}
	return checkParts(content)
}

func checkParts(parts []Part) error {
	for i, p := range parts {
		if len(p.Value) == 0 {
			continue
		}
		if err := CheckJSON(p.Value); err != nil {
			return fmt.Errorf("the value of part %d: %w", i+1, err)
		}
	}
	return nil
}

// Deep reports whether b, of which nobody knows yet whether it is JSON, nests
// deeper than MaxDepth.
func Deep(b []byte) bool {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = skipString(b, i) - 1 // or beyond b
		case '{', '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// valid is json.Valid, several times as fast: a recursive descent instead of a
// state machine that is called for each byte.
func valid(b []byte) bool { return validTo(b, maxNesting) }

func validTo(b []byte, depth int) bool {
	end := skipSpace(b, skipValue(b, skipSpace(b, 0), depth))
	return end == len(b)
}

// The skip functions return where what begins at i has ended, or a place beyond
// b if it is not valid.

func invalid(b []byte) int { return len(b) + 1 }

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// room is how many more lists may be nested.
func skipValue(b []byte, i, room int) int {
	if i >= len(b) {
		return invalid(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{':
		return skipList(b, i, room-1, '}')
	case '[':
		return skipList(b, i, room-1, ']')
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipWord(b []byte, i int, word string) int {
	if i+len(word) > len(b) || string(b[i:i+len(word)]) != word {
		return invalid(b)
	}
	return i + len(word)
}

// skipList skips an object or array, by what closes it.
func skipList(b []byte, i, room int, closer byte) int {
	if room < 0 {
		return invalid(b)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == closer {
		return i + 1
	}
	for {
		if closer == '}' {
			if i = skipName(b, i); i >= len(b) {
				return invalid(b)
			}
		}
		i = skipSpace(b, skipValue(b, i, room))
		switch {
		case i >= len(b):
			return invalid(b)
		case b[i] == closer:
			return i + 1
		case b[i] != ',':
			return invalid(b)
		}
		i = skipSpace(b, i+1)
	}
}

// skipName skips a member's name and the colon.
func skipName(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return invalid(b)
	}
	i = skipSpace(b, skipString(b, i))
	if i >= len(b) || b[i] != ':' {
		return invalid(b)
	}
	return skipSpace(b, i+1)
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		i += plain(b[i:])
		if i == len(b) {
			break
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return invalid(b)
		case c == '\\':
			if i = skipEscape(b, i+1); i >= len(b) {
				return invalid(b)
			}
		}
	}
	return invalid(b)
}

// plain counts bytes at the beginning of b that mean nothing special in a string,
// eight at a time: most of what is stored is text.
func plain(b []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; n+8 <= len(b); n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote, slash := w^ones*'"', w^ones*'\\'
		// A byte's top bit is set where it was less than what is taken from it.
		if ((w-ones*' ')&^w|(quote-ones)&^quote|(slash-ones)&^slash)&tops != 0 {
			break
		}
	}
	return n
}

// skipEscape returns the place of the last byte of the escape after a backslash.
func skipEscape(b []byte, i int) int {
	if i >= len(b) {
		return invalid(b)
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i
	case 'u':
		if i+4 < len(b) && isHex(b[i+1]) && isHex(b[i+2]) && isHex(b[i+3]) && isHex(b[i+4]) {
			return i + 4
		}
	}
	return invalid(b)
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = skipDigits(b, i); i > len(b) {
		return i
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i > len(b) {
			return i
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i
}

// skipDigits skips at least one digit.
func skipDigits(b []byte, i int) int {
	start := i
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	if i == start {
		return invalid(b)
	}
	return i
}
