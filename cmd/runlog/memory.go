package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// quietFor is how long a process has to do next to nothing before its garbage goes
// back to the system.
const quietFor = time.Second

// tidyWhenQuiet collects garbage when a process that was busy has become quiet, and
// returns what is free to the system, until ctx ends. The collector by itself acts on
// allocation alone: ten thousand streams that were opened and then are silent would
// hold twice what they need for minutes. So a busy process can have the garbage that
// makes it fast, and a quiet one has none.
func tidyWhenQuiet(ctx context.Context) error {
	tick := time.NewTicker(quietFor)
	defer tick.Stop()
	last, tidy := allocated(), false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := allocated()
		quiet := now.total-last.total < max(now.live/32, 64<<10)
		if quiet && !tidy {
			debug.FreeOSMemory()
			now = allocated()
		}
		last, tidy = now, quiet
	}
}

// An allocation is what a process has allocated since its start, and what was alive
// after the last collection, in bytes.
type allocation struct{ total, live uint64 }

func allocated() allocation {
	m := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(m)
	return allocation{m[0].Value.Uint64(), m[1].Value.Uint64()}
}
