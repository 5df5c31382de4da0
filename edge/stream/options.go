package stream

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
)

// What holds where Options say nothing.
const (
	DefaultPing         = 15 * time.Second
	DefaultWriteTimeout = 30 * time.Second
)

// Options of a Hub; the zero value works.
type Options struct {
	RingBytes    int           // about what a topic keeps in memory, in bytes, default 16 MiB
	RingEvents   int           // events a topic keeps, default 16384
	Linger       time.Duration // how long a topic without viewers stays, default 10 s
	PageBytes    int           // what a viewer reads from the log at once, in bytes, default 256 KiB
	PageReaders  int           // reads of the log at once, default 32
	PageQueue    int           // viewers that read the log or wait for it, from which on the hub is Busy, default 10,000
	Ping         time.Duration // silence after which a stream gets a ping, default 15 s
	Heartbeat    time.Duration // silence after which it gets a heartbeat, if a run is under way, default 5 s
	CheckHead    time.Duration // silence of a session after which the head of its log is read, default 15 s
	WriteTimeout time.Duration // how long a client may not take what is written, default 30 s
	LoadWait     time.Duration // how long a viewer or a request waits for memory, or for its turn to load a conversation, before it is refused, default 5 s
	Budget       room.Budget   // how much memory topics, conversations and viewers that catch up may take
	Ledger       *room.Ledger  // of the process; nil: it has no ceiling
	Logger       *slog.Logger
	Observe      Observer
}

// An Observer is told what viewers get, for metrics. Any field may be nil.
type Observer struct {
	Sent     func(events, bytes int) // to one viewer, at each flush
	Lag      func(time.Duration)     // from a live event's time to its write
	Replayed func(events, bytes int) // what a viewer got until it had caught up
	Paged    func(events, bytes int) // read from the log for one viewer
	Reset    func()                  // a client's position was no longer in the log
	Crowded  func()                  // a large conversation was refused
	Woken    func()                  // a parked viewer got a goroutine, to read the log or to wait for its client
}

func (o *Options) setDefaults() {
	o.RingBytes = cmp.Or(o.RingBytes, 16<<20)
	o.RingEvents = cmp.Or(o.RingEvents, 16384)
	o.Linger = cmp.Or(o.Linger, 10*time.Second)
	o.PageBytes = cmp.Or(o.PageBytes, 256<<10)
	o.PageReaders = cmp.Or(o.PageReaders, 32)
	o.PageQueue = cmp.Or(o.PageQueue, 10_000)
	o.Ping = cmp.Or(o.Ping, DefaultPing)
	o.Heartbeat = cmp.Or(o.Heartbeat, 5*time.Second)
	o.CheckHead = cmp.Or(o.CheckHead, 15*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, DefaultWriteTimeout)
	o.LoadWait = cmp.Or(o.LoadWait, 5*time.Second)
	o.Budget = o.Budget.Divide()
	o.Observe.setDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// setDefaults has what nobody asks for told to nobody.
func (o *Observer) setDefaults() {
	for _, counts := range []*func(events, bytes int){&o.Sent, &o.Replayed, &o.Paged} {
		if *counts == nil {
			*counts = func(int, int) {}
		}
	}
	for _, happened := range []*func(){&o.Reset, &o.Crowded, &o.Woken} {
		if *happened == nil {
			*happened = func() {}
		}
	}
	if o.Lag == nil {
		o.Lag = func(time.Duration) {}
	}
}
