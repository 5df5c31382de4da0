package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// Headers of a stored frame.
const (
	hdrSeq    = "Runlog-Seq"   // first-last
	hdrFrame  = "Runlog-Frame" // unique id of the frame, by its writer
	hdrExpect = "Nats-Expected-Last-Subject-Sequence"
	hdrPrev   = "Nats-Last-Sequence" // on live messages: the session's previous frame
	hdrPos    = "Nats-Sequence"
	hdrBeat   = "Runlog-Beat"
)

// A Head is the end of a session's log: the zero Head is that of an empty log.
type Head struct {
	Seq   event.Seq // of the last event
	First event.Seq // of the first event of the last frame
	Pos   uint64    // stream position of the last frame
	Prev  uint64    // stream position of the frame before it, 0 if there is none
	Time  time.Time // when that frame was stored, zero if unknown

	frameID string
}

// A Frame is one stored message: consecutive events of one session.
type Frame struct {
	Key   Key
	Pos   uint64 // stream position
	Prev  uint64 // stream position of the session's previous frame, 0 if none
	First event.Seq
	Last  event.Seq
	Time  time.Time // when it was stored, zero if unknown
	ID    string    // given by its writer, may be empty
	Data  []byte    // NDJSON, each line ends in LF
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

// Events decodes the frame.
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

// stored is a message as the leader gives it.
type stored struct {
	Subject string    `json:"subject"`
	Pos     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

func (m stored) header() (nats.Header, error) {
	if len(m.Header) == 0 {
		return nats.Header{}, nil
	}
	return nats.DecodeHeadersMsg(m.Header)
}

type getRequest struct {
	Seq    uint64 `json:"seq,omitempty"`
	LastBy string `json:"last_by_subj,omitempty"`
	NextBy string `json:"next_by_subj,omitempty"`
}

// leaderGet reads one message from the stream's leader: the only read that can
// decide who owns a session or that something is not there. ErrNotFound if
// there is none.
func (l *Log) leaderGet(ctx context.Context, stream string, req getRequest) (stored, error) {
	msg, err := l.askLeader(ctx, "$JS.API.STREAM.MSG.GET."+stream, event.Encode(req))
	if err != nil {
		return stored{}, unavailable(fmt.Errorf("read %s: %w", stream, err))
	}
	var res struct {
		Error   *jetstream.APIError `json:"error"`
		Message *stored             `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &res); err != nil {
		return stored{}, fmt.Errorf("read %s: %w", stream, err)
	}
	switch {
	case res.Error != nil && res.Error.ErrorCode == errNoMessage:
		return stored{}, ErrNotFound
	case res.Error != nil:
		return stored{}, unavailable(fmt.Errorf("read %s: %w", stream, res.Error))
	case res.Message == nil:
		return stored{}, fmt.Errorf("read %s: answer without a message", stream)
	}
	return *res.Message, nil
}

// A stream that has no leader answers nobody, so a read during an election is
// asked again soon, for leaderTries times leaderTry at most.
const (
	leaderTry   = time.Second
	leaderTries = 5
)

func (l *Log) askLeader(ctx context.Context, subject string, req []byte) (msg *nats.Msg, err error) {
	for range leaderTries {
		try, cancel := context.WithTimeout(ctx, leaderTry)
		msg, err = l.nc.RequestWithContext(try, subject, req)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return msg, err
		}
	}
	return nil, err
}

// leaderKV reads a key of a bucket from its leader; a deleted one is ErrNotFound.
func (l *Log) leaderKV(ctx context.Context, bucket, key string) (stored, error) {
	m, err := l.leaderGet(ctx, "KV_"+bucket, getRequest{LastBy: "$KV." + bucket + "." + key})
	if err != nil {
		return m, err
	}
	h, err := m.header()
	if err == nil && h.Get("KV-Operation") != "" {
		err = ErrNotFound
	}
	return m, err
}

// Head reads the end of the session's log from the leader. The zero Head and no
// error for a session without events.
func (l *Log) Head(ctx context.Context, k Key) (Head, error) {
	f, err := l.headFrame(ctx, k)
	return f.head(), err
}

// headFrame is Head with all of the last frame.
func (l *Log) headFrame(ctx context.Context, k Key) (Frame, error) {
	m, err := l.leaderGet(ctx, l.stream(k), getRequest{LastBy: l.subject(k)})
	if errors.Is(err, ErrNotFound) {
		return Frame{}, nil
	}
	if err != nil {
		return Frame{}, fmt.Errorf("head of %s: %w", k, err)
	}
	f, err := m.frame(k)
	if err != nil {
		return Frame{}, fmt.Errorf("head of %s: %w", k, err)
	}
	return f, nil
}

func (f Frame) head() Head {
	return Head{Seq: f.Last, First: f.First, Pos: f.Pos, Prev: f.Prev, Time: f.Time, frameID: f.ID}
}

func (m stored) frame(k Key) (Frame, error) {
	h, err := m.header()
	if err != nil {
		return Frame{}, err
	}
	f, err := newFrame(k, m.Pos, h, m.Data)
	f.Time = m.Time
	return f, err
}

func newFrame(k Key, pos uint64, h nats.Header, data []byte) (Frame, error) {
	f := Frame{Key: k, Pos: pos, Data: data, ID: h.Get(hdrFrame)}
	first, last, ok := strings.Cut(h.Get(hdrSeq), "-")
	a, err1 := strconv.ParseUint(first, 10, 64)
	b, err2 := strconv.ParseUint(last, 10, 64)
	if !ok || err1 != nil || err2 != nil || a == 0 || b < a || b-a > uint64(len(data)) { // no event is less than a byte
		return f, fmt.Errorf("frame %d of %s has no valid %s header: %q", pos, k, hdrSeq, h.Get(hdrSeq))
	}
	f.First, f.Last = event.Seq(a), event.Seq(b)
	prev := h.Get(hdrPrev)
	if e := h.Get(hdrExpect); e != "" {
		prev = e
	}
	if prev != "" {
		f.Prev, _ = strconv.ParseUint(prev, 10, 64)
	}
	return f, nil
}

// readBatch is how many frames one request asks for: larger batches hold up
// writers of the same stream.
const readBatch = 256

// batchBytes ends a batch early, of a reader that wants all there is.
const batchBytes = 8 << 20

// Read yields the frames that hold the events after after, through head, which
// the caller has from Head or from a live frame. The first frame may begin at
// or before after. An error comes at once when anything is missing: ErrGone if
// the log begins later than after+1.
func (l *Log) Read(ctx context.Context, k Key, after event.Seq, head Head) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		if after >= head.Seq || l.yieldRecent(ctx, k, after, head, yield) {
			return
		}
		pos, err := l.locate(ctx, k, after+1, head)
		if err != nil {
			yield(Frame{}, fmt.Errorf("read %s after %d: %w", k, after, err))
			return
		}
		l.readFrom(ctx, k, after, pos, head, batchBytes, yield)
	}
}

func (l *Log) readFrom(ctx context.Context, k Key, after event.Seq, pos uint64, head Head, size int, yield func(Frame, error) bool) {
	next, begun := after+1, false
	for behind := lag(0); next <= head.Seq; {
		from := pos
		for f, err := range l.batch(ctx, k, pos, size) {
			if errors.Is(err, errSilent) {
				behind += silent - 1
				break
			}
			if err == nil && f.Last < next { // before what was asked for
				pos = f.Pos + 1
				continue
			}
			if err == nil && (f.First > next || begun && f.First != next) {
				err = ErrGone
			}
			if err != nil {
				yield(Frame{}, fmt.Errorf("read %s from %d: %w", k, next, err))
				return
			}
			if !yield(f, nil) {
				return
			}
			next, pos, begun = f.Last+1, f.Pos+1, true
			if next > head.Seq {
				return
			}
		}
		if err := behind.after(ctx, pos > from); err != nil {
			yield(Frame{}, fmt.Errorf("read %s from %d: the head is %d: %w", k, next, head.Seq, err))
			return
		}
	}
}

// A lag is how often in a row a replica had nothing new, though the leader has said that
// more is there.
type lag int

// after is called after each answer: it begins anew if there was something new, and else
// gives the replicas a moment, a longer one each time. ErrUnavailable when that happened
// twenty times, ctx's error if that has ended.
func (n *lag) after(ctx context.Context, progress bool) error {
	if progress {
		*n = 0
		return nil
	}
	if *n++; *n > 20 {
		return ErrUnavailable
	}
	return sleep(ctx, time.Duration(*n)*5*time.Millisecond)
}

// direct asks any replica first, and the leader when that one does not have it, or
// says nothing.
func (l *Log) direct(ctx context.Context, k Key, req getRequest) (Frame, error) {
	try, cancel := context.WithTimeout(ctx, replicaTry)
	msg, err := l.nc.RequestWithContext(try, "$JS.API.DIRECT.GET."+l.stream(k), event.Encode(req))
	cancel()
	if err == nil && msg.Header.Get("Status") == "" && msg.Header.Get(jetstream.SubjectHeader) == l.subject(k) {
		return directFrame(k, msg)
	}
	m, err := l.leaderGet(ctx, l.stream(k), req)
	if err != nil {
		return Frame{}, err
	}
	return m.frame(k)
}
