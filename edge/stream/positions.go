package stream

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Positions is the cursor of a stream of many sessions: a position in each, in
// the order in which they are named, behind a mark of their names. To clients it
// is opaque.
type Positions struct {
	Mark string
	At   []Position
}

// NewPositions is the start of some sessions.
func NewPositions(sessions []string) Positions {
	h := fnv.New32a()
	for _, s := range sessions {
		_, _ = h.Write(append([]byte(s), 0)) // never fails
	}
	return Positions{strconv.FormatUint(uint64(h.Sum32()), 36), make([]Position, len(sessions))}
}

// Parse reads a cursor of the same sessions, and leaves p as it is if there is
// none. ErrBadCursor if it is of others, or of another order.
func (p *Positions) Parse(s string) error {
	if s == "" || s == "0" {
		return nil
	}
	mark, list, ok := strings.Cut(s, "~")
	fields := strings.Split(list, "_")
	if !ok || mark != p.Mark || len(fields) != len(p.At) {
		return fmt.Errorf("%w: %q is not of these %d sessions in this order; use the id of the last message of the same URL, or none and name how far each is: session=a/41", ErrBadCursor, brief(s), len(p.At))
	}
	for i, f := range fields {
		at, err := ParsePosition(f)
		if err != nil {
			return err
		}
		p.At[i] = at
	}
	return nil
}

// String is what Parse reads.
func (p Positions) String() string {
	b := append(make([]byte, 0, 16+4*len(p.At)), p.Mark...)
	for i, at := range p.At {
		sep := byte('_')
		if i == 0 {
			sep = '~'
		}
		b = at.append(append(b, sep))
	}
	return string(b)
}
