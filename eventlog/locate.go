package eventlog

import (
	"context"
	"errors"

	"github.com/runlog-dev/runlog/event"
)

const (
	// stepsBack is how many frames are followed back from the head before it is
	// searched: most clients have missed little.
	stepsBack = 2
	// closeBy is how many events may be read before the one that was asked for:
	// about what one more probe costs.
	closeBy = 64
)

// A mark is a frame's stream position and its first event.
type mark struct {
	pos uint64
	seq event.Seq
}

// locate finds the stream position of the frame that holds seq, or of one shortly before
// it. A client that comes back is mostly near the head, so the chain of previous frames
// is followed first. Then positions are probed, farther and farther back, until one is
// before seq, and at last between that one and the one after it.
func (l *Log) locate(ctx context.Context, k Key, seq event.Seq, head Head) (uint64, error) {
	if seq == 1 {
		return 1, nil
	}
	at, found, err := l.near(ctx, k, seq, head)
	if found || err != nil {
		return at.Pos, err
	}
	lo, hi, err := l.reachBack(ctx, k, seq, mark{at.Pos, at.First}, perEvent(at, head))
	if err == nil {
		lo.pos, err = l.between(ctx, k, seq, lo, hi)
	}
	if errors.Is(err, ErrNotFound) {
		return 0, ErrGone // even the frames that were just seen
	}
	return lo.pos, err
}

// near follows the chain of previous frames from the head. at is the frame of seq, or
// the first one that there is, if that was found; else a search goes on before it.
func (l *Log) near(ctx context.Context, k Key, seq event.Seq, head Head) (at Head, found bool, err error) {
	at, steps := head, stepsBack
	if at.First == 0 { // a head from Frame.Before does not say where its frame begins
		at.First, at.Prev, steps = at.Seq+1, at.Pos, steps+1
	}
	for range steps {
		if at.First <= seq || at.Prev == 0 {
			return at, true, nil
		}
		f, err := l.frameAt(ctx, k, at.Prev)
		if errors.Is(err, ErrNotFound) {
			return at, true, nil // the log begins here
		}
		if err != nil {
			return Head{}, false, err
		}
		at = f.End()
	}
	return at, at.First <= seq, nil
}

// perEvent is how many positions of the stream, which many sessions share, there are to
// an event of this session, estimated by two of its frames.
func perEvent(from, to Head) float64 {
	return float64(to.Pos-from.Pos) / float64(to.Seq-from.Seq)
}

// reachBack probes ever farther before hi, whose frame comes after seq, until a
// frame begins at seq or before.
func (l *Log) reachBack(ctx context.Context, k Key, seq event.Seq, hi mark, perEvent float64) (lo, high mark, err error) {
	end := hi.pos
	for reach := float64(hi.seq-seq) * perEvent; reach < float64(end-1); reach = 4*reach + 1 {
		f, err := l.frameFrom(ctx, k, end-1-uint64(reach))
		if err != nil {
			return lo, hi, err
		}
		if f.First <= seq {
			return mark{f.Pos, f.First}, hi, nil
		}
		if f.Pos < hi.pos {
			hi = mark{f.Pos, f.First}
		}
	}
	return mark{1, 1}, hi, nil
}

// between narrows two marks down, of which lo is at seq or before it and hi after it. It
// guesses by proportion and halves in turns: the first is fast where the session is
// spread evenly over the stream, the second is never slow.
func (l *Log) between(ctx context.Context, k Key, seq event.Seq, lo, hi mark) (uint64, error) {
	for halve := false; hi.pos-lo.pos > 1 && seq-lo.seq > closeBy; halve = !halve {
		pos := lo.pos + (hi.pos-lo.pos)/2
		if !halve {
			share := float64(seq-closeBy/2-lo.seq) / float64(hi.seq-lo.seq)
			pos = lo.pos + uint64(share*float64(hi.pos-lo.pos))
		}
		pos = min(max(pos, lo.pos+1), hi.pos-1)
		f, err := l.frameFrom(ctx, k, pos)
		switch {
		case err != nil:
			return 0, err
		case f.First > seq:
			hi = mark{pos, f.First}
		case f.Last >= seq:
			return f.Pos, nil
		default:
			lo = mark{f.Pos, f.First}
		}
	}
	return lo.pos, nil
}

// frameAt reads the frame at a position of the session's chain.
func (l *Log) frameAt(ctx context.Context, k Key, pos uint64) (Frame, error) {
	return l.direct(ctx, k, getRequest{Seq: pos})
}

// frameFrom reads the session's first frame at or after a position.
func (l *Log) frameFrom(ctx context.Context, k Key, pos uint64) (Frame, error) {
	return l.direct(ctx, k, getRequest{Seq: pos, NextBy: l.subject(k)})
}
