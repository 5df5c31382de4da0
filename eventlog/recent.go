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

// Recent reads back from a session's last frame, which was read already, to the
// event after a position, if that is a few frames of size bytes together at most.
// Otherwise, and where they cannot be read now, it is the last frame alone.
func (l *Log) Recent(ctx context.Context, k Key, after event.Seq, last Frame, size int) []Frame {
	if after < last.Last {
		if frames, ok, err := l.back(ctx, k, after, last, size); ok && err == nil {
			return frames
		}
	}
	return []Frame{last}
}

// recent reads the frames that hold the events after a position, if they are few
// and come to size bytes at most. Otherwise ok is false, which it finds out soon.
func (l *Log) recent(ctx context.Context, k Key, after event.Seq, head Head, size int) (frames []Frame, ok bool, err error) {
	if far(after, head) || head.Pos == 0 {
		return nil, false, nil
	}
	last, err := l.frameAt(ctx, k, head.Pos)
	if errors.Is(err, ErrNotFound) || err == nil && last.Last != head.Seq {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return l.back(ctx, k, after, last, size)
}

// far: the frames on the way would have to be much larger than the last one.
func far(after event.Seq, head Head) bool {
	return head.Seq-after > 4*maxSteps*(head.Seq-head.First+1)
}

// back follows the chain of frames from the last one back to the event after a
// position, as long as it is likely to get there.
func (l *Log) back(ctx context.Context, k Key, after event.Seq, last Frame, size int) (frames []Frame, ok bool, err error) {
	if far(after, last.head()) {
		return nil, false, nil
	}
	frames, used := append(frames, last), len(last.Data)
	for f := last; f.First > after+1; {
		// As far as these frames tell about those before them:
		seen, rest := int(last.Last-f.First)+1, int(f.First-1-after)
		if len(frames)+rest*len(frames)/seen > maxSteps || used+rest*used/seen > size || f.Prev == 0 {
			return nil, false, nil
		}
		before, err := l.frameAt(ctx, k, f.Prev)
		if errors.Is(err, ErrNotFound) || err == nil && before.Last+1 != f.First {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		f = before
		frames, used = append(frames, f), used+len(f.Data)
	}
	slices.Reverse(frames)
	return frames, true, nil
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
