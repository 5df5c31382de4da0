package eventlog

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/event"
)

// batchRequest asks any replica for several messages at once.
type batchRequest struct {
	Seq    uint64 `json:"seq"`
	NextBy string `json:"next_by_subj"`
	Batch  int    `json:"batch"`
	Bytes  int    `json:"max_bytes"`
}

const (
	// batchTimeout bounds what a server may take for one batch.
	batchTimeout = 10 * time.Second
	// replicaTry is how long a replica may say nothing: one that is cut off is
	// asked like all others until its neighbours notice, which takes NATS half a
	// minute. Whoever asks again is likely to reach another one.
	replicaTry = time.Second
	// silent is how many empty answers (see lag) a replica's silence counts for.
	silent = 4
)

// batch yields up to readBatch frames of the session from a stream position on. It ends
// after the frame with which they reach size bytes. errSilent if the replica stops
// answering. A frame that cannot be read comes with an error and its Pos, and the next
// one follows; any other error ends it.
//
// It has a channel of its own, just large enough for what can come: an ordinary
// subscription allocates half a megabyte.
func (l *Log) batch(ctx context.Context, k Key, pos uint64, size int) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		timed, cancel := context.WithTimeout(ctx, batchTimeout)
		defer cancel()
		msgs := make(chan *nats.Msg, readBatch+1)
		inbox := l.nc.NewInbox()
		sub, err := l.nc.ChanSubscribe(inbox, msgs)
		if err != nil {
			yield(Frame{}, unavailable(err))
			return
		}
		defer func() { _ = sub.Unsubscribe() }()
		req := batchRequest{max(pos, 1), l.subject(k), readBatch, size}
		if err := l.nc.PublishRequest("$JS.API.DIRECT.GET."+l.stream(k), inbox, event.Encode(req)); err != nil {
			yield(Frame{}, unavailable(err))
			return
		}
		for {
			if ctx.Err() != nil {
				yield(Frame{}, unavailable(ctx.Err()))
				return
			}
			f, more, err := nextOf(timed, k, msgs)
			if err != nil && f.Pos == 0 {
				yield(Frame{}, unavailable(err))
				return
			}
			if !more || !yield(f, err) {
				return
			}
		}
	}
}

// nextOf waits for the next frame of a batch; more is false after the last one.
func nextOf(ctx context.Context, k Key, msgs <-chan *nats.Msg) (f Frame, more bool, err error) {
	m, err := awaitMessage(ctx, msgs)
	if err != nil {
		return Frame{}, false, err
	}
	switch status := m.Header.Get("Status"); status {
	case "":
	case "204", "404": // the end of the batch; nothing there
		return Frame{}, false, nil
	case "503":
		return Frame{}, false, nats.ErrNoResponders
	default:
		return Frame{}, false, fmt.Errorf("direct get: %s %s", status, m.Header.Get("Description"))
	}
	f, err = directFrame(k, m)
	return f, true, err
}

// awaitMessage returns what has come at once, even when the time is over: it may have been
// the reader that took so long.
func awaitMessage(ctx context.Context, msgs <-chan *nats.Msg) (*nats.Msg, error) {
	select {
	case m := <-msgs:
		return m, nil
	default:
	}
	patience := time.NewTimer(replicaTry)
	defer patience.Stop()
	select {
	case m := <-msgs:
		return m, nil
	case <-patience.C:
		return nil, errSilent
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// directFrame reads the frame from a replica's answer.
func directFrame(k Key, m *nats.Msg) (Frame, error) {
	f, err := messageFrame(k, m)
	if at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp")); err == nil {
		f.Time = at
	}
	return f, err
}
