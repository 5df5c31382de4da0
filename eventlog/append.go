package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

const (
	// frameAim is where a frame is closed although more events wait.
	frameAim = 64 << 10
	// maxBuffered is where Append waits for the stream to keep up.
	maxBuffered = 8 << 20
	// ackWait is how long an append waits before it asks what became of it.
	ackWait = 2 * time.Second
)

// A Writer appends to one session's log, from the head its owner saw. One frame
// is in flight; events appended meanwhile go into the next one (group commit).
//
// Its promise: an event is committed once or never, events are committed in the
// order of Append without gaps, and after another writer has appended nothing
// more gets in: the Writer ends with ErrFenced. Safe for concurrent use.
type Writer struct {
	log   *Log
	key   Key
	id    string    // of this writer, part of every frame's id
	start event.Seq // it appends after this event
	stop  context.CancelFunc
	ctx   context.Context // ends with the writer

	mu        sync.Mutex
	changed   sync.Cond // on mu: buffer, committed or err changed
	buf       []byte
	ends      []int // offset in buf after each waiting event
	seq       event.Seq
	committed Head
	err       error     // why the writer ended
	sentAt    time.Time // the last committed frame, for the first time
	frames    int
}

// Writer returns a writer that continues the log after head. Its first event is
// refused, and the writer fenced, if the session's log has moved on meanwhile.
// Close it.
func (l *Log) Writer(k Key, head Head) *Writer {
	ctx, stop := context.WithCancel(context.Background())
	w := &Writer{log: l, key: k, id: event.NewID("w"), ctx: ctx, stop: stop, start: head.Seq, seq: head.Seq, committed: head}
	w.changed.L = &w.mu
	go w.run()
	return w
}

// Append takes the next events: it gives them their seq, id, session and, where
// that is missing, their time, and returns them as they will be stored. They are
// committed soon; Sync tells when. Either all are taken or none: ErrTooLarge if
// one is over event.MaxEncoded, ErrFenced or the reason if the writer has ended.
func (w *Writer) Append(events ...event.Event) ([]event.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && len(w.buf) > maxBuffered {
		w.changed.Wait()
	}
	if w.err != nil {
		return nil, w.err
	}
	stored := w.numbered(events)
	buf, ends := w.buf, w.ends // of a call that fails nothing is kept
	for _, e := range stored {
		before := len(buf)
		buf = e.AppendLine(buf)
		if size := len(buf) - before; size > event.MaxEncoded {
			return nil, fmt.Errorf("%s of %d bytes, at most %d: %w", e.Type, size, event.MaxEncoded, ErrTooLarge)
		}
		ends = append(ends, len(buf))
	}
	w.buf, w.ends, w.seq = buf, ends, w.seq+event.Seq(len(stored))
	w.changed.Broadcast()
	return stored, nil
}

// numbered are the next events as they will be stored.
func (w *Writer) numbered(events []event.Event) []event.Event {
	now := event.At(time.Now())
	stored := slices.Clone(events)
	for i := range stored {
		e := &stored[i]
		e.V, e.Seq, e.SessionID = event.Version, w.seq+event.Seq(i)+1, w.key.Session
		e.ID = event.NameIn(e.SessionID, e.Seq, w.log.epoch)
		if e.Time.IsZero() {
			e.Time = now
		}
	}
	return stored
}

// Sync waits until everything appended so far is committed.
func (w *Writer) Sync(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed.Broadcast()
	})
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	want := w.seq
	for w.committed.Seq < want {
		if w.err != nil {
			return w.err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("commit of %s: %w", w.key, context.Cause(ctx))
		}
		w.changed.Wait()
	}
	return nil
}

// Head is the last committed frame.
func (w *Writer) Head() Head {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.committed
}

// Start is the position after which this writer appends.
func (w *Writer) Start() event.Seq { return w.start }

// Fresh reports whether the last commit was sent less than d ago: so long the
// session cannot have been taken over. What is not committed yet proves nothing.
func (w *Writer) Fresh(d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.sentAt.IsZero() && time.Since(w.sentAt) < d
}

// Check asks the leader whether this writer still owns the session; if not, the
// writer ends with ErrFenced.
func (w *Writer) Check(ctx context.Context) error {
	f, err := w.log.headFrame(ctx, w.key)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && f.Pos > w.committed.Pos && !w.Wrote(f) {
		w.endLocked(ErrFenced)
	}
	return w.err
}

// Wrote reports whether a frame is this writer's own.
func (w *Writer) Wrote(f Frame) bool { return strings.HasPrefix(f.ID, w.id+"-") }

// Fence ends the writer because its owner has seen a foreign claim.
func (w *Writer) Fence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(ErrFenced)
}

// AfterEnd calls fn with the reason once the writer has ended, from a goroutine of
// its own, unless stop was called before.
func (w *Writer) AfterEnd(fn func(error)) (stop func() bool) {
	return context.AfterFunc(w.ctx, func() { fn(w.Err()) })
}

// Err is nil while the writer works.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// ErrClosed is the end of a writer that its owner closed.
var ErrClosed = errors.New("writer closed")

// Close ends the writer. What is not committed may still get in, or not: Sync first.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(ErrClosed)
}

func (w *Writer) endLocked(err error) {
	if w.err != nil {
		return
	}
	w.err = err
	if errors.Is(err, ErrFenced) && w.log.opts.Observe.Fenced != nil {
		w.log.opts.Observe.Fenced()
	}
	w.stop()
	w.changed.Broadcast()
}

// run commits frame after frame until the writer ends.
func (w *Writer) run() {
	for {
		frame, first, last, ok := w.take()
		if !ok {
			return
		}
		began := time.Now()
		head, err := w.commit(frame, first, last)
		w.mu.Lock()
		if err != nil {
			w.endLocked(err)
			w.mu.Unlock()
			return
		}
		w.committed, w.sentAt = head, began
		w.changed.Broadcast()
		w.mu.Unlock()
		if f := w.log.opts.Observe.Appended; f != nil {
			f(time.Since(began), int(last-first)+1, len(frame))
		}
	}
}

// take waits for events and cuts the next frame from the buffer.
func (w *Writer) take() (frame []byte, first, last event.Seq, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && len(w.ends) == 0 {
		w.changed.Wait()
	}
	if w.err != nil {
		return nil, 0, 0, false
	}
	n := 1
	for n < len(w.ends) && w.ends[n-1] < frameAim && w.ends[n] <= event.MaxFrame {
		n++
	}
	size := w.ends[n-1]
	frame = append([]byte(nil), w.buf[:size]...)
	w.buf = append(w.buf[:0], w.buf[size:]...)
	w.ends = append(w.ends[:0], w.ends[n:]...)
	for i := range w.ends {
		w.ends[i] -= size
	}
	if cap(w.buf) > maxBuffered/8 && len(w.buf) == 0 {
		w.buf = nil // a burst is over
	}
	first = w.committed.Seq + 1
	return frame, first, first + event.Seq(n) - 1, true
}

// commit brings one frame into the log, however long that takes, or finds that
// the session has another owner.
func (w *Writer) commit(data []byte, first, last event.Seq) (Head, error) {
	prev := w.Head()
	w.frames++
	id := w.id + "-" + strconv.Itoa(w.frames)
	msg := w.message(id, prev, data, first, last)
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		pos, err := w.publish(msg)
		landed := err == nil
		if !landed && apiCode(err) != errInProcess {
			pos, landed, err = w.resolve(prev, id, err)
			if lasts(err) {
				return Head{}, fmt.Errorf("append to %s: %w", w.key, err)
			}
			if err != nil && w.ctx.Err() == nil {
				w.log.opts.Logger.Warn("append waits for the event log", "tenant", w.key.Tenant, "session", w.key.Session, "err", err)
			}
		}
		if landed {
			return Head{Seq: last, First: first, Pos: pos, Prev: prev.Pos, Epoch: w.log.epoch}, nil
		}
		if sleep(w.ctx, wait) != nil {
			return Head{}, w.Err()
		}
	}
}

// message is a frame as it is stored, if prev is the head then.
func (w *Writer) message(id string, prev Head, data []byte, first, last event.Seq) *nats.Msg {
	msg := nats.NewMsg(w.log.subject(w.key))
	msg.Header.Set(hdrSeq, first.String()+"-"+last.String())
	msg.Header.Set(hdrFrame, id)
	msg.Header.Set(hdrExpect, strconv.FormatUint(prev.Pos, 10))
	if w.log.epoch != 0 {
		msg.Header.Set(hdrEpoch, w.log.epoch.String())
	}
	msg.Data = data
	return msg
}

func (w *Writer) publish(msg *nats.Msg) (uint64, error) {
	ctx, cancel := context.WithTimeout(w.ctx, ackWait)
	defer cancel()
	answer, err := w.log.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Seq   uint64              `json:"seq"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return 0, err
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	return ack.Seq, nil
}

// lasts reports whether an append will never get in.
func lasts(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, errDamaged) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload)
}

// resolve asks the leader what became of an append that failed, or may have: it landed,
// nothing changed (send it again; err is why), or somebody else wrote (fenced).
func (w *Writer) resolve(prev Head, id string, why error) (pos uint64, landed bool, err error) {
	f, err := w.log.headFrame(w.ctx, w.key)
	switch {
	case err != nil:
		return 0, false, err
	case f.ID == id:
		return f.Pos, true, nil
	case f.Pos == prev.Pos:
		return 0, false, why
	case 0 < f.Pos && f.Pos < prev.Pos:
		return 0, false, fmt.Errorf("%w: its leader knows less than was committed", ErrUnavailable)
	}
	return 0, false, ErrFenced
}
