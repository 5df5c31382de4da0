package stream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// A Position is a client's cursor: it has everything through Seq, and of the
// event after Seq its first Sub wire messages. Epoch is that of the last event of which
// it has anything: after a restore of the log there may be another one in its place.
type Position struct {
	Seq   event.Seq
	Sub   int32
	Epoch event.Epoch
}

// ErrBadCursor: the text is not a position.
var ErrBadCursor = errors.New("malformed cursor")

// maxSub bounds the wire messages of one event.
const maxSub = 1 << 16

// ParsePosition reads an id of a stream: 41 is behind all of event 41, 41.0
// behind its first wire message. Empty and 0 are the start. Of events that were appended
// after the log was restored it is 41~tkqezo and 41~tkqezo.0.
func ParsePosition(s string) (Position, error) {
	if s == "" {
		return Position{}, nil
	}
	whole, part, cut := strings.Cut(s, ".")
	whole, late, restored := strings.Cut(whole, "~")
	seq, err := strconv.ParseUint(whole, 10, 64)
	if err != nil {
		return Position{}, badCursor(s)
	}
	var epoch event.Epoch
	if restored {
		if epoch, err = event.ParseEpoch(late); err != nil || epoch == 0 {
			return Position{}, badCursor(s)
		}
	}
	if !cut {
		return Position{Seq: event.Seq(seq), Epoch: epoch}, nil
	}
	sub, err := strconv.ParseUint(part, 10, 64)
	if err != nil || seq == 0 || sub >= maxSub {
		return Position{}, badCursor(s)
	}
	return Position{event.Seq(seq - 1), int32(sub) + 1, epoch}, nil
}

func badCursor(s string) error {
	return fmt.Errorf("%w: %q; use the id of the last event that was received, or 0", ErrBadCursor, brief(s))
}

// brief is the beginning of what was sent in place of a cursor.
func brief(s string) string {
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return s
}

// String is what ParsePosition reads.
func (p Position) String() string {
	var b [32]byte
	return string(p.append(b[:0]))
}

// position is behind the i-th of the n wire messages of the event.
func (e *entry) position(i, n int) Position {
	if i == n-1 {
		return Position{e.Seq, 0, e.epoch}
	}
	return Position{e.Seq - 1, int32(i) + 1, e.epoch}
}

func (p Position) append(b []byte) []byte {
	b = event.AppendPosition(b, p.touches(), p.Epoch)
	if p.Sub == 0 {
		return b
	}
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
