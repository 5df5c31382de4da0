package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/runlog-dev/runlog/event"
)

// maxSteps is how many frames are read one by one. A batch is one request, but
// the server looks through everything that all sessions have stored since its
// first frame, so that it is dear exactly where many sessions come back at once
// for a frame or two.
const maxSteps = 16

// recent reads the frames that hold the events after a position by following the
// chain back from the head, if they are few and come to size bytes at most.
// Otherwise ok is false, which it finds out soon.
func (l *Log) recent(ctx context.Context, k Key, after event.Seq, head Head, size int) (frames []Frame, ok bool, err error) {
	if last := head.Seq - head.First + 1; head.Seq-after > 4*maxSteps*last {
		return nil, false, nil // frames would have to be much larger than the last one
	}
	used := 0
	for pos, next := head.Pos, head.Seq+1; pos > 0; {
		f, err := l.frameAt(ctx, k, pos)
		if errors.Is(err, ErrNotFound) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		if f.Last+1 != next {
			return nil, false, nil
		}
		frames, used = append(frames, f), used+len(f.Data)
		if f.First <= after+1 {
			slices.Reverse(frames)
			return frames, true, nil
		}
		// As far as these frames tell about those before them:
		seen, rest := int(head.Seq-f.First)+1, int(f.First-1-after)
		if len(frames)+rest*len(frames)/seen > maxSteps || used+rest*used/seen > size {
			return nil, false, nil
		}
		pos, next = f.Prev, f.First
	}
	return nil, false, nil
}

// readAfter yields the frames after one whose position is known.
func (l *Log) readAfter(ctx context.Context, k Key, from, head Head) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		if from.Seq >= head.Seq || l.yieldRecent(ctx, k, from.Seq, head, yield) {
			return
		}
		l.readFrom(ctx, k, from.Seq, from.Pos+1, head, batchBytes, yield)
	}
}

// yieldRecent yields what recent reads; done is false if that is nothing.
func (l *Log) yieldRecent(ctx context.Context, k Key, after event.Seq, head Head, yield func(Frame, error) bool) (done bool) {
	frames, ok, err := l.recent(ctx, k, after, head, batchBytes)
	if err != nil {
		yield(Frame{}, fmt.Errorf("read %s after %d: %w", k, after, err))
		return true
	}
	for _, f := range frames {
		if !yield(f, nil) {
			break
		}
	}
	return ok
}
