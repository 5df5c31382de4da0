package edge

import (
	"net/http"
	"runtime"
	runtimemetrics "runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// memoryFull is the share of its memory that an edge may have in use for good
// before it takes no more streams.
const memoryFull = 0.85

// overload says why the edge takes no more streams, before it collapses under
// them. Those that are open go on.
func (s *Server) overload(tenant string) error {
	if err := s.memoryLeft(); err != nil {
		return err
	}
	if s.hub.Busy(tenant) {
		return s.refused("reads", overloaded("too many clients are catching up at this edge; try another one"))
	}
	return nil
}

func (s *Server) memoryLeft() error {
	limit := s.opts.Memory
	if limit <= 0 || s.memory.inUse(time.Now()) <= int64(memoryFull*float64(limit)) {
		return nil
	}
	s.memory.collect(time.Now())
	return s.refused("memory", overloaded("this edge has used up its memory; try another one"))
}

// overloaded is a request that would be right at another edge, or later.
func overloaded(format string, args ...any) *Problem {
	p := problem(http.StatusServiceUnavailable, event.CodeOverloaded, format, args...)
	p.retryAfter = 2 * time.Second
	return p
}

// usage knows how much memory the process uses. It looks now and then only, since that
// takes a lock of the runtime's. Safe for concurrent use.
type usage struct {
	at        atomic.Int64 // when bytes was right, in Unix nanoseconds
	bytes     atomic.Int64
	collected atomic.Int64 // when collect last did so, in Unix nanoseconds
}

// How old a usage may be, and how often garbage is collected to find out whether
// memory is still used up.
const (
	lookAfter    = 100 * time.Millisecond
	collectAfter = 5 * time.Second
)

// inUse is MemoryInUse, as it was at most lookAfter ago.
func (u *usage) inUse(now time.Time) int64 {
	at := u.at.Load()
	if now.UnixNano()-at >= int64(lookAfter) && u.at.CompareAndSwap(at, now.UnixNano()) {
		u.bytes.Store(MemoryInUse())
	}
	return u.bytes.Load()
}

// collect collects garbage now and then, to find out whether memory is free again: an
// edge that refuses streams does so little that it would collect only minutes later.
func (u *usage) collect(now time.Time) {
	at := u.collected.Load()
	if now.UnixNano()-at < int64(collectAfter) || !u.collected.CompareAndSwap(at, now.UnixNano()) {
		return
	}
	go func() {
		runtime.GC()
		u.at.Store(0)
	}()
}

// MemoryInUse is how many bytes the process could not give back now: what the last
// garbage collection found alive, and all that is not on the heap. Garbage does not
// count: there is always as much of it as the limit allows.
func MemoryInUse() int64 {
	samples := []runtimemetrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	runtimemetrics.Read(samples)
	live, used := samples[0].Value.Uint64(), samples[1].Value.Uint64()
	for _, s := range samples[2:] {
		used -= min(used, s.Value.Uint64())
	}
	return int64(live + used)
}
