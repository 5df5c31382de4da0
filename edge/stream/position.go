package stream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// A Position is a client's cursor: it has everything through Seq, and of the
// event after Seq its first Sub wire messages.
type Position struct {
	Seq event.Seq
	Sub int
}

// ErrBadCursor: the text is not a position.
var ErrBadCursor = errors.New("malformed cursor")

// maxSub bounds the wire messages of one event.
const maxSub = 1 << 16

// ParsePosition reads an id of a stream: 41 is behind all of event 41, 41.0
// behind its first wire message. Empty and 0 are the start.
func ParsePosition(s string) (Position, error) {
	if s == "" {
		return Position{}, nil
	}
	whole, part, cut := strings.Cut(s, ".")
	seq, err := strconv.ParseUint(whole, 10, 64)
	if err != nil {
		return Position{}, badCursor(s)
	}
	if !cut {
		return Position{Seq: event.Seq(seq)}, nil
	}
	sub, err := strconv.ParseUint(part, 10, 64)
	if err != nil || seq == 0 || sub >= maxSub {
		return Position{}, badCursor(s)
	}
	return Position{event.Seq(seq - 1), int(sub) + 1}, nil
}

func badCursor(s string) error {
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return fmt.Errorf("%w: %q; use the id of the last event that was received, or 0", ErrBadCursor, s)
}

// String is what ParsePosition reads.
func (p Position) String() string {
	var b [32]byte
	return string(p.append(b[:0]))
}

// subPosition is behind the i-th of the n wire messages of an event.
func subPosition(seq event.Seq, i, n int) Position {
	if i == n-1 {
		return Position{Seq: seq}
	}
	return Position{seq - 1, i + 1}
}

func (p Position) append(b []byte) []byte {
	if p.Sub == 0 {
		return strconv.AppendUint(b, uint64(p.Seq), 10)
	}
	b = strconv.AppendUint(b, uint64(p.Seq)+1, 10)
	b = append(b, '.')
	return strconv.AppendInt(b, int64(p.Sub-1), 10)
}

// touches is the last event of which the client claims to have anything.
func (p Position) touches() event.Seq {
	if p.Sub > 0 {
		return p.Seq + 1
	}
	return p.Seq
}
