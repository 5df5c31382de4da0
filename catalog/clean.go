package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// What the projection keeps of a text, in bytes: longer ids would not fit an
// index, and the log has the whole.
const (
	maxID      = 512
	maxLabel   = 256
	maxMessage = 4 << 10
)

// clean makes a text that every database takes: valid UTF-8 without NUL. What
// is not becomes U+FFFD, byte by byte as in a JSON decoder.
func clean(s string) string {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// ident is clean for ids. One over maxID bytes is replaced by its beginning and
// its hash, so that different ids stay different.
func ident(s string) string {
	s = clean(s)
	if len(s) <= maxID {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return cut(s, 64) + "~" + hex.EncodeToString(sum[:])
}

func label(s string) string { return cut(clean(s), maxLabel) }

func message(s string) string { return cut(clean(s), maxMessage) }

// cut keeps whole runes within n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// cleanJSON is clean for JSON text: escapes of NUL and lone surrogates, which
// JSON allows and databases refuse, become U+FFFD too. Everything else, digits
// of numbers and order of members included, stays. What is not JSON becomes "".
func cleanJSON(raw json.RawMessage) string {
	if !json.Valid(raw) {
		return ""
	}
	s := clean(string(raw))
	if !strings.Contains(s, `\u`) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		n := escape(s)
		if r := codeUnit(s[:n]); r == 0 || isSurrogate(r) {
			b.WriteString(`\ufffd`)
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// escape returns the length of what begins s: text up to a backslash, an
// escape, or a pair of surrogates.
func escape(s string) int {
	if s[0] != '\\' {
		if i := strings.IndexByte(s, '\\'); i > 0 {
			return i
		}
		return len(s)
	}
	if s[1] != 'u' {
		return 2
	}
	if high := codeUnit(s[:6]); high >= 0xD800 && high < 0xDC00 && len(s) >= 12 {
		if low := codeUnit(s[6:12]); low >= 0xDC00 && low < 0xE000 {
			return 12
		}
	}
	return 6
}

// codeUnit reads \uXXXX and returns -1 for anything else.
func codeUnit(s string) int {
	if len(s) != 6 || s[:2] != `\u` {
		return -1
	}
	var b [2]byte
	if _, err := hex.Decode(b[:], []byte(s[2:])); err != nil {
		return -1
	}
	return int(b[0])<<8 | int(b[1])
}

func isSurrogate(r int) bool { return r >= 0xD800 && r < 0xE000 }
