package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// Head reads the end of the session's log from the leader. The zero Head and no
// error for a session without events.
func (l *Log) Head(ctx context.Context, k Key) (Head, error) {
	f, err := l.headFrame(ctx, k)
	return f.End(), err
}

// headFrame reads the session's last frame from the leader.
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

// readBatch is how many frames one request asks for: larger batches hold up
// writers of the same stream.
const readBatch = 256

// batchBytes is the size of a batch for a reader that wants all there is.
const batchBytes = 8 << 20

// firstBytes is the size of such a reader's first batch. Who has to wait before he may read
// much (Gate) holds no more than that meanwhile.
const firstBytes = 96 << 10

// Read yields the frames that hold the events after the seq after, through head, which
// the caller has from Head or from a live frame. The first frame may begin at or before
// after. An error ends it, at the place where something is missing: ErrGone if the log
// no longer holds it, ErrUnavailable if it cannot be read now.
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
		at, all := Head{Seq: after, Pos: pos - 1}, true
		first := 0
		l.readFrom(ctx, k, after, pos, head, firstBytes, func(f Frame, err error) bool {
			at, first = f.End(), first+len(f.Data)
			all = yield(f, err) && err == nil
			return all && first < firstBytes
		})
		if all && at.Seq < head.Seq {
			l.readFrom(ctx, k, at.Seq, at.Pos+1, head, batchBytes, yield)
		}
	}
}

// readFrom yields the frames that hold the events after a seq, through head. It reads in
// batches of size bytes, from a stream position at which or after which the first of
// these frames is.
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
			yield(Frame{}, fmt.Errorf("read %s from %d: the head is %d: %w", k, next, head.Seq, l.orGone(ctx, k, err)))
			return
		}
	}
}

// orGone is ErrGone in place of err if there is nothing of the session any more.
func (l *Log) orGone(ctx context.Context, k Key, err error) error {
	if head, headErr := l.Head(ctx, k); headErr == nil && head.Pos == 0 {
		return ErrGone
	}
	return err
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

// direct reads one frame from any replica, or from the leader if that replica does not
// have it or says nothing. ErrNotFound if what is there is not of the session: a stream
// that was restored gives its positions once more.
func (l *Log) direct(ctx context.Context, k Key, req getRequest) (Frame, error) {
	try, cancel := context.WithTimeout(ctx, replicaTry)
	msg, err := l.nc.RequestWithContext(try, "$JS.API.DIRECT.GET."+l.stream(k), event.Encode(req))
	cancel()
	if err == nil && msg.Header.Get("Status") == "" && msg.Header.Get(jetstream.SubjectHeader) == l.subject(k) {
		return directFrame(k, msg)
	}
	m, err := l.leaderGet(ctx, l.stream(k), req)
	if err == nil && m.Subject != l.subject(k) {
		err = ErrNotFound
	}
	if err != nil {
		return Frame{}, err
	}
	return m.frame(k)
}
