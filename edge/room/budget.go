package room

import (
	"cmp"
	"runtime"
)

// A Budget says how the memory of an edge is divided. Divide makes one of a ceiling; a
// field that is set already stays as it is. All but Folds are bytes.
//
//	in use for good          what is refused from there on
//	------------------------------------------------------
//	85 % (Streams)           streams
//	90 % (Requests)          large bodies and conversations beside others; what streams
//	                         share is cut
//	95 % (Conns)             requests and connections
//	97 % (Refusals)          over HTTP/2, to be told so
//
//	room for                 at most          each tenant    without a ceiling
//	-------------------------------------------------------------------------
//	what streams share       a quarter (Shared)    -         64 MiB
//	conversations told       a quarter (Told)      half      256 MiB
//	bodies being read        an eighth (Bodies)    half      256 MiB
//	the log that viewers     an eighth (Replays)   half      256 MiB
//	read to catch up
//	sessions of streams      a quarter (Many)      -         no bound
//	of many
//
// The rooms are bounds and not reserves: what one does not use is left to streams, and who
// comes when streams have taken it waits, or is refused.
type Budget struct {
	Ceiling  int64 // of the process; 0: no limit
	Streams  int64
	Requests int64
	Conns    int64
	Refusals int64
	Shared   int64
	Told     int64
	Bodies   int64
	Replays  int64
	Many     int64
	Folds    int // conversations that are made at once
}

// Divide fills in what is not set.
func (b Budget) Divide() Budget {
	b.Folds = cmp.Or(b.Folds, foldsAtOnce(b.Ceiling))
	if b.Ceiling <= 0 {
		b.Shared, b.Told, b.Bodies = cmp.Or(b.Shared, 64<<20), cmp.Or(b.Told, 256<<20), cmp.Or(b.Bodies, 256<<20)
		b.Replays = cmp.Or(b.Replays, 256<<20)
		return b
	}
	b.Streams, b.Requests, b.Conns = cmp.Or(b.Streams, b.Ceiling/100*85), cmp.Or(b.Requests, b.Ceiling/100*90), cmp.Or(b.Conns, b.Ceiling/100*95)
	b.Refusals = cmp.Or(b.Refusals, b.Ceiling/100*97)
	b.Shared, b.Told, b.Bodies = cmp.Or(b.Shared, b.Ceiling/4), cmp.Or(b.Told, b.Ceiling/4), cmp.Or(b.Bodies, b.Ceiling/8)
	b.Replays, b.Many = cmp.Or(b.Replays, b.Ceiling/8), cmp.Or(b.Many, b.Ceiling/4)
	return b
}

// Collect is what the garbage collector should be told of a ceiling: a little less, since
// it notices a moment later what goroutines take.
func Collect(ceiling int64) int64 { return ceiling - ceiling/16 }

// foldsAtOnce is a few for each processor, since a load waits for its stores half of the
// time, but no more than one for each 64 MiB of memory: to make a conversation takes
// several times its size.
func foldsAtOnce(ceiling int64) int {
	n := 4 * runtime.GOMAXPROCS(0)
	if ceiling > 0 {
		n = min(n, max(1, int(ceiling>>26)))
	}
	return n
}
