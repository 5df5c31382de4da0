package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// spendOnSpeed lets a busy process have twice the usual garbage, unless GOGC says
// something else: what delays an event for long is the collector. A limit of memory
// (limitMemory) holds all the same, and tidyWhenQuiet takes the garbage back.
func spendOnSpeed() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

// quietFor is how long a process has to do next to nothing before its garbage goes
// back to the system.
const quietFor = time.Second

// tidyWhenQuiet collects garbage when a process that was busy has become quiet, and
// returns what is free to the system, until ctx ends. The collector by itself acts on
// allocation alone: ten thousand streams that were opened and then are silent would
// hold twice what they need for minutes.
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
