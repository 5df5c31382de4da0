package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/runlog-dev/runlog/event"
)

// maxSteps is how many frames are read one by one at most. A batch needs one request
// alone, but for that the server looks through everything that all sessions have stored
// since the batch's first frame: too dear when many clients come back at once, each for
// a frame or two of its session.
const maxSteps = 16

// Recent returns the frames that hold the events after a seq, if these are a few and
// come to about size bytes at most. Otherwise, and if they cannot be read now, it
// returns the session's last frame alone, which the caller has already.
func (l *Log) Recent(ctx context.Context, k Key, after event.Seq, last Frame, size int) []Frame {
	if after < last.Last {
		if frames, ok, err := l.back(ctx, k, after, last, size); ok && err == nil {
			return frames
		}
	}
	return []Frame{last}
}

// recent reads the frames that hold the events after a seq, if these are a few and come
// to about size bytes at most. If not, ok is false; it gives up early.
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

// far reports whether the events after a seq are too many for a few frames, unless these
// are much larger than the last one.
func far(after event.Seq, head Head) bool {
	return head.Seq-after > 4*maxSteps*(head.Seq-head.First+1)
}

// back follows the chain of frames from the last one back to the event after a seq. It
// gives up (ok is false) as soon as it is not likely to get there within maxSteps frames
// and size bytes.
func (l *Log) back(ctx context.Context, k Key, after event.Seq, last Frame, size int) (frames []Frame, ok bool, err error) {
	if far(after, last.End()) {
		return nil, false, nil
	}
	frames, used := append(frames, last), len(last.Data)
	for f := last; f.First > after+1; {
		// If those before them are like the frames seen so far:
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

// readAfter is Read from a frame whose stream position is known.
func (l *Log) readAfter(ctx context.Context, k Key, from, head Head) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		if from.Seq >= head.Seq || l.yieldRecent(ctx, k, from.Seq, head, yield) {
			return
		}
		l.readFrom(ctx, k, from.Seq, from.Pos+1, head, batchBytes, yield)
	}
}

// yieldRecent yields what recent reads. If it has to be read in another way, done is false.
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
