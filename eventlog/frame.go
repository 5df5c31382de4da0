package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/event"
)

// A Head is the end of a session's log, and so a position in it. The zero Head is the end
// of an empty log.
type Head struct {
	Seq   event.Seq   // of the last event
	First event.Seq   // of the first event of the last frame
	Pos   uint64      // stream position of the last frame
	Prev  uint64      // stream position of the frame before it, 0 if there is none
	Epoch event.Epoch // of the last frame
	Time  time.Time   // when that frame was stored, zero if unknown
}

// A Frame is one stored message: consecutive events of one session. The zero Frame is
// that of a session without events.
type Frame struct {
	Key   Key
	Pos   uint64      // stream position
	Prev  uint64      // stream position of the session's previous frame, 0 if none
	First event.Seq   // of its first event
	Last  event.Seq   // of its last event
	Epoch event.Epoch // in which it was appended
	Time  time.Time   // when it was stored, zero if unknown
	ID    string      // given by its writer, may be empty
	Data  []byte      // NDJSON, each line ends in LF
}

// Len is how many events the frame says it holds.
func (f Frame) Len() int {
	if f.Last == 0 {
		return 0
	}
	return int(f.Last-f.First) + 1
}

// Lines yields the frame's encoded events, without line ends.
func (f Frame) Lines() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line, rest := cutLine(f.Data); line != nil && yield(line); line, rest = cutLine(rest) {
		}
	}
}

// Numbered yields the seqs First to Last, each with its line as Lines gives it. If the
// frame has fewer lines than it says, the last seqs come with nil; if it has more,
// they are left out. So a damaged frame never shifts the seqs of what follows it.
func (f Frame) Numbered() iter.Seq2[event.Seq, []byte] {
	return func(yield func(event.Seq, []byte) bool) {
		line, rest := []byte(nil), f.Data
		for i := range f.Len() {
			if line, rest = cutLine(rest); !yield(f.First+event.Seq(i), line) {
				return
			}
		}
	}
}

// cutLine cuts the first line off that is not empty; nil if there is none.
func cutLine(data []byte) (line, rest []byte) {
	for len(data) > 0 {
		if line, data, _ = bytes.Cut(data, lf); len(line) > 0 {
			return line, data
		}
	}
	return nil, nil
}

var lf = []byte("\n")

// Events decodes the frame. It is an error if one of its lines cannot be decoded.
func (f Frame) Events() ([]event.Event, error) {
	events := make([]event.Event, 0, f.Len())
	for line := range f.Lines() {
		e, err := event.Decode(line)
		if err != nil {
			return nil, fmt.Errorf("frame %d of %s: %w", f.Pos, f.Key, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// readable decodes the frame as far as that is possible: an event that cannot be
// read, or is missing, is one that has a Seq and nothing else. The error is nil.
func (f Frame) readable() ([]event.Event, error) {
	events := make([]event.Event, 0, f.Len())
	for seq, line := range f.Numbered() {
		e, err := event.Decode(line)
		if err != nil || e.Seq != seq {
			e = event.Event{Seq: seq}
		}
		events = append(events, e)
	}
	return events, nil
}

// End is the end of the log as it was when the frame had been stored: the position to
// read on from.
func (f Frame) End() Head {
	return Head{Seq: f.Last, First: f.First, Pos: f.Pos, Prev: f.Prev, Epoch: f.Epoch, Time: f.Time}
}

// Before is the end of the log as it was before the frame was stored. Its First, Prev,
// Epoch and Time are not known.
func (f Frame) Before() Head {
	if f.First == 0 {
		return Head{}
	}
	return Head{Seq: f.First - 1, Pos: f.Prev}
}

// Headers of a stored frame.
const (
	hdrSeq    = "Runlog-Seq"   // first-last
	hdrFrame  = "Runlog-Frame" // unique id of the frame, by its writer
	hdrEpoch  = "Runlog-Epoch" // missing if it is 0
	hdrExpect = "Nats-Expected-Last-Subject-Sequence"
	hdrPrev   = "Nats-Last-Sequence" // on live messages: the session's previous frame
	hdrPos    = "Nats-Sequence"
	hdrBeat   = "Runlog-Beat"
)

// messageFrame reads the frame from a message that tells its position in a header: a
// live one, or a replica's answer.
func messageFrame(k Key, m *nats.Msg) (Frame, error) {
	pos, err := strconv.ParseUint(m.Header.Get(hdrPos), 10, 64)
	if err != nil {
		return Frame{}, fmt.Errorf("frame of %s: %w", k, err)
	}
	return newFrame(k, pos, m.Header, m.Data)
}

// errDamaged: a stored message is no frame. Nothing mends it, so nothing is tried again.
var errDamaged = errors.New("not written by runlog, or damaged; run `runlog fsck`")

// newFrame reads what the header says of a frame, and refuses what cannot be.
func newFrame(k Key, pos uint64, h nats.Header, data []byte) (Frame, error) {
	f := Frame{Key: k, Pos: pos, Data: data, ID: h.Get(hdrFrame)}
	first, last, ok := strings.Cut(h.Get(hdrSeq), "-")
	a, err1 := strconv.ParseUint(first, 10, 64)
	b, err2 := strconv.ParseUint(last, 10, 64)
	if !ok || err1 != nil || err2 != nil || a == 0 || b < a || b-a > uint64(len(data)) { // no event is less than a byte
		return f, fmt.Errorf("frame %d of %s has no valid %s header: %q: %w", pos, k, hdrSeq, h.Get(hdrSeq), errDamaged)
	}
	f.First, f.Last = event.Seq(a), event.Seq(b)
	if e := h.Get(hdrEpoch); e != "" {
		if f.Epoch, err1 = event.ParseEpoch(e); err1 != nil {
			return f, fmt.Errorf("frame %d of %s has no valid %s header: %q: %w", pos, k, hdrEpoch, e, errDamaged)
		}
	}
	prev := h.Get(hdrPrev)
	if e := h.Get(hdrExpect); e != "" {
		prev = e
	}
	if prev != "" {
		f.Prev, _ = strconv.ParseUint(prev, 10, 64)
	}
	return f, nil
}
