package event

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxID is the longest id a client may choose, in bytes.
const MaxID = 128

const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID returns prefix_ and 26 characters: 48 bits of time, so that ids sort
// roughly by age, and 80 random bits.
func NewID(prefix string) string {
	var raw [16]byte
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		raw[i] = byte(ms >> (40 - 8*i))
	}
	_, _ = rand.Read(raw[6:]) // never fails: crypto/rand aborts the process instead
	return prefix + "_" + base32(raw)
}

// base32 writes 128 bits as 26 Crockford digits, the first one of 3 bits.
func base32(raw [16]byte) string {
	out := make([]byte, 26)
	for i := range out {
		first := 5*i - 2 // bit offset of the digit
		var v byte
		for bit := first; bit < first+5; bit++ {
			v <<= 1
			if bit >= 0 {
				v |= raw[bit/8] >> (7 - bit%8) & 1
			}
		}
		out[i] = crockford[v]
	}
	return string(out)
}

// NewTraceID returns a W3C trace id: 32 hex digits.
func NewTraceID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

// CheckID says why an id chosen by a client cannot be used. Any printable text
// without white space, slash or line break passes, up to MaxID bytes.
func CheckID(what, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%s is empty", what)
	case len(id) > MaxID:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(id), MaxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%s is not valid UTF-8", what)
	case id == "." || id == "..":
		return fmt.Errorf("%s %q cannot be used in a URL", what, id)
	}
	for _, r := range id {
		if r == '/' || r == '\\' || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return fmt.Errorf("%s holds %q; use printable characters without spaces and slashes", what, r)
		}
	}
	return nil
}
