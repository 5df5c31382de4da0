package event

import "encoding/binary"

// maxNesting is where encoding/json stops too.
const maxNesting = 10_000

// valid is json.Valid, several times as fast: a recursive descent instead of a
// state machine that is called for each byte.
func valid(b []byte) bool {
	end := skipSpace(b, skipValue(b, skipSpace(b, 0), 0))
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

func skipValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return invalid(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{':
		return skipList(b, i, depth+1, '}')
	case '[':
		return skipList(b, i, depth+1, ']')
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
func skipList(b []byte, i, depth int, closer byte) int {
	if depth > maxNesting {
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
		i = skipSpace(b, skipValue(b, i, depth))
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
