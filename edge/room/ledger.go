package room

import (
	"runtime"
	runtimemetrics "runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// A Ledger knows what memory a process uses, and what it will use in a moment. Whoever is
// let in gets a promise of what that will cost, before any of it can be measured: a burst
// of streams takes most of its memory when all of them are in.
//
// What is in use is measured at most every lookAfter, and what is on the heap shows when
// garbage was collected. So a promise counts until garbage has been collected twice since:
// the first time some of what was promised may have been to come. It has no lock on the
// way of those who are let in. A nil Ledger, of a process without a ceiling, promises anything.
// Safe for concurrent use.
type Ledger struct {
	measure func() (inUse int64, collections uint64)

	// An era ends with a collection that was noticed, but not before eraAtLeast.
	era      atomic.Uint32
	promised [eras]atomic.Int64 // in an era, by its number modulo eras
	atStart  atomic.Int64       // in use when the era began
	inUse    atomic.Int64       // in use when it was looked last

	looked      atomic.Int64 // when, in Unix nanoseconds
	looking     sync.Mutex
	collections uint64 // noticed; guarded by looking, as is
	began       time.Time

	collected atomic.Int64 // when collect last did so, in Unix nanoseconds
}

// eras is a power of two, so that their numbers may overflow. Two count; a promise that was
// on its way to one of them when it ended goes to a third, and is forgotten with it.
const eras = 4

// How old what was measured may be, how long whoever is let in may take to use what it was
// promised, and how often garbage is collected to find out whether memory is still used
// up, or whether what was promised was used.
const (
	lookAfter          = 100 * time.Millisecond
	eraAtLeast         = 500 * time.Millisecond
	collectAfter       = 5 * time.Second
	collectForPromises = time.Second
)

// NewLedger returns that of this process.
func NewLedger() *Ledger {
	l := &Ledger{measure: measured}
	l.era.Store(1)
	return l
}

// A Promise is memory that somebody will use. The zero Promise is of nothing. Return it
// when it is not needed any more, once.
type Promise struct {
	era   uint32
	bytes int64
}

// Promise promises n bytes if all that is used and promised is at most upTo then.
func (l *Ledger) Promise(n, upTo int64) (p Promise, ok bool) {
	if l == nil {
		return p, true
	}
	p = l.add(n)
	if l.Used() <= upTo {
		return p, true
	}
	l.Return(p)
	l.collect(time.Now(), upTo)
	return Promise{}, false
}

// add promises without asking.
func (l *Ledger) add(n int64) Promise {
	if l == nil {
		return Promise{}
	}
	era := l.era.Load()
	l.promised[era%eras].Add(n)
	return Promise{era, n}
}

// Return takes a promise back. What was measured since is given back by the collector.
func (l *Ledger) Return(p Promise) {
	if p.era != 0 && l.era.Load()-p.era < 2 {
		l.promised[p.era%eras].Add(-p.bytes)
	}
}

// joined is one promise for two, the later of which still counts.
func (l *Ledger) joined(a, b Promise) Promise {
	if a.era == b.era {
		b.bytes += a.bytes
	}
	return b
}

// less takes n bytes of a promise back, as far as it has them.
func (l *Ledger) less(p Promise, n int64) Promise {
	l.Return(Promise{p.era, min(n, p.bytes)})
	p.bytes -= min(n, p.bytes)
	return p
}

// Era changes when it was measured what has become of what was given back, and of what was
// promised before the era that ends.
func (l *Ledger) Era() uint32 { return l.era.Load() }

// Used is how many bytes are in use and promised.
func (l *Ledger) Used() int64 {
	if l == nil {
		return 0
	}
	l.look(time.Now())
	era := l.era.Load()
	promised := max(0, l.promised[era%eras].Load()) + max(0, l.promised[(era-1)%eras].Load())
	return max(l.inUse.Load(), l.atStart.Load()+promised)
}

// look measures now and then only, since that takes a lock of the runtime's.
func (l *Ledger) look(now time.Time) {
	if now.UnixNano()-l.looked.Load() < int64(lookAfter) || !l.looking.TryLock() {
		return
	}
	defer l.looking.Unlock()
	inUse, collections := l.measure()
	l.inUse.Store(inUse)
	if collections != l.collections && now.Sub(l.began) >= eraAtLeast {
		l.collections, l.began = collections, now
		l.atStart.Store(inUse)
		next := l.era.Load() + 1
		l.promised[next%eras].Store(0)
		l.era.Store(next)
	}
	l.looked.Store(now.UnixNano())
}

// collect collects garbage now and then: a process that refuses does so little that it
// would collect only minutes later.
func (l *Ledger) collect(now time.Time, upTo int64) {
	pause := collectAfter
	if l.inUse.Load() <= upTo {
		pause = collectForPromises
	}
	at := l.collected.Load()
	if now.UnixNano()-at < int64(pause) || !l.collected.CompareAndSwap(at, now.UnixNano()) {
		return
	}
	go func() {
		runtime.GC()
		l.looked.Store(0)
	}()
}

// InUse is how many bytes the process could not give back now: what the last garbage
// collection found alive, and all that is not on the heap. Garbage does not count: there
// is always as much of it as the limit allows.
func InUse() int64 {
	n, _ := measured()
	return n
}

func measured() (inUse int64, collections uint64) {
	samples := []runtimemetrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	runtimemetrics.Read(samples)
	live, used := samples[1].Value.Uint64(), samples[2].Value.Uint64()
	for _, s := range samples[3:] {
		used -= min(used, s.Value.Uint64())
	}
	return int64(live + used), samples[0].Value.Uint64()
}
