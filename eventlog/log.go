package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// Sentinels that callers act on.
var (
	// ErrFenced: another worker has claimed the session; nothing of this
	// writer gets in any more.
	ErrFenced = errors.New("fenced: another worker has claimed the session")
	// ErrTooLarge: an encoded event is over event.MaxEncoded; nothing was taken.
	ErrTooLarge = errors.New("event too large for a frame")
	// ErrGone: the log no longer holds what was asked for.
	ErrGone = errors.New("events are no longer kept in the log")
	// ErrNotFound: there is no such run, agent, dead letter or installation.
	ErrNotFound = errors.New("not found")
	// ErrInboxFull: too many commands wait in the session's inbox.
	ErrInboxFull = errors.New("inbox full")
	// ErrTicketed: a ticket of the session is outstanding, or was until a moment ago.
	ErrTicketed = errors.New("a ticket is outstanding")
	// ErrUnavailable: the server cannot be reached or has no leader now.
	ErrUnavailable = errors.New("event log unavailable")
	// ErrFull is an ErrUnavailable: JetStream has used up the storage that it may have. A
	// server whose disk is full mostly does not say so, but nothing.
	ErrFull = fmt.Errorf("%w: it has no room left, and takes nothing until its operator makes some", ErrUnavailable)
	// ErrRestored: the log was restored from a backup since this process opened it.
	ErrRestored = errors.New("the event log was restored while this process ran: start it again")
	// ErrMismatch: an idempotency key or run id was used with another request.
	ErrMismatch = errors.New("already used for a different request")
)

// Options of a Log; the zero value suits one server.
type Options struct {
	Partitions int           // LOG streams; fixed at install, default 1
	Replicas   int           // of every stream, default 1
	Lease      time.Duration // how long a silent worker keeps a session, default 15 s
	Blobs      Blobs         // for snapshots too large for the KV bucket; nil: those are not kept
	Logger     *slog.Logger
	Observe    Observer
	// Exclusive says that no other process uses this log: tickets that a dead
	// process held are handed out again at once, not after a lease.
	Exclusive bool
}

// Blobs keeps what is too large for JetStream.
type Blobs interface {
	Put(ctx context.Context, name string, data []byte) error
	Get(ctx context.Context, name string) ([]byte, error) // ErrNotFound if there is none
	Delete(ctx context.Context, name string) error        // one that is not there is fine
}

// An Observer is told what happens, for metrics. Any field may be nil.
type Observer struct {
	Appended func(took time.Duration, events, bytes int) // a frame was committed
	Fenced   func()                                      // a writer has lost its session
	Gap      func(how string)                            // live frames are missing; what showed it: a later frame (log), or a beat (check)
}

// Log is one installation of runlog in a JetStream. It is safe for concurrent
// use; it owns no goroutines but those of Live and of writers.
type Log struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	opts Options
	runs jetstream.KeyValue // RUNS
	snap jetstream.KeyValue // SNAPSHOTS
	reg  jetstream.KeyValue // REGISTRY: agents, dead letters, secrets, the install record

	epoch event.Epoch // of what this process appends

	wakes wakes
}

// Open creates the streams that are missing, checks those that are there, and
// refuses a server that silently ignored a setting.
func Open(ctx context.Context, nc *nats.Conn, opts Options) (*Log, error) {
	opts.setDefaults()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	l := &Log{nc: nc, js: js, opts: opts}
	if err := l.setUp(ctx); err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	return l, nil
}

const defaultLease = 15 * time.Second

func (o *Options) setDefaults() {
	o.Partitions = cmp.Or(o.Partitions, 1)
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.Lease = cmp.Or(o.Lease, defaultLease)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Lease is how long a silent worker keeps a session.
func (l *Log) Lease() time.Duration { return l.opts.Lease }

// Partitions is the number of LOG streams.
func (l *Log) Partitions() int { return l.opts.Partitions }

// Ping asks the server for a round trip through JetStream.
func (l *Log) Ping(ctx context.Context) error {
	if _, err := l.js.AccountInfo(ctx); err != nil {
		return unavailable(fmt.Errorf("ping JetStream: %w", err))
	}
	return nil
}

// Flush waits until the server has seen everything this process has sent.
func (l *Log) Flush() error {
	if err := l.nc.FlushTimeout(2 * time.Second); err != nil {
		return unavailable(fmt.Errorf("flush: %w", err))
	}
	return nil
}

func (l *Log) stream(k Key) string { return streamName(k.partition(l.opts.Partitions)) }

func streamName(p int) string { return "LOG_" + strconv.Itoa(p) }

func (l *Log) subject(k Key) string {
	return "log." + strconv.Itoa(k.partition(l.opts.Partitions)) + "." + k.suffix()
}

func (l *Log) liveSubject(k Key) string {
	return "live." + strconv.Itoa(k.partition(l.opts.Partitions)) + "." + k.suffix()
}

// unavailable marks errors that come from the way to the server or from a
// missing leader, so that callers can try again or answer 503.
func unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	for _, cause := range []error{nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, jetstream.ErrNoStreamResponse, context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return errors.Join(ErrUnavailable, err)
		}
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && slices.Contains(full, api.ErrorCode) {
		return errors.Join(ErrFull, err)
	}
	if errors.As(err, &api) && api.Code >= 500 && !slices.Contains(lasting, api.ErrorCode) {
		return errors.Join(ErrUnavailable, err)
	}
	return err
}

// Error codes of JetStream that mean something here.
const (
	errNoPeers       = 10005 // for the replicas
	errWrongLast     = 10071 // the fence: look who wrote
	errInProcess     = 10164 // another append of the subject is under way: try again
	errSameInProcess = 10158 // a message with the same id is under way: try again
	errPerSubject    = 10077 // too many messages of the subject
	errNoMessage     = 10037 // for that subject or position
	errNoSequence    = 10043 // to delete
	errNotDeleted    = 10057 // for any reason, mostly because it is gone
	errNotClustered  = 10074 // a server alone has no replicas
	errBadConfig     = 10052 // such as more replicas than there can be
	errAccountFull   = 10002 // its storage
	errServerFull    = 10023 // its storage
	errStorageFull   = 10047 // that there is for files
)

// full are refusals that pass when an operator makes room.
var full = []jetstream.ErrorCode{errAccountFull, errServerFull, errStorageFull}

// lasting are refusals that the server reports as if they were its own trouble, and that
// do not pass.
var lasting = []jetstream.ErrorCode{errPerSubject, errNotClustered, errBadConfig}

func apiCode(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// settled repeats try while another request for the same thing is under way,
// which replicated streams report before they know how it ends. The pause doubles
// from 2 ms; after 5 s it is ErrUnavailable.
func settled(ctx context.Context, try func() (pending bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		pending, err := try()
		if !pending {
			return err
		}
		if sleep(ctx, wait) != nil {
			return errors.Join(ErrUnavailable, err)
		}
	}
}

// Logger is where this log's trouble is told.
func (l *Log) Logger() *slog.Logger { return l.opts.Logger }
