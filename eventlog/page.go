package eventlog

import (
	"context"
	"fmt"
)

// Page reads the frames that hold the events after a position: as many as come to about
// size bytes, at least one, none after head. It is for readers that go at their own pace
// and hold one page at a time. The position is the End of the last frame that was read;
// or a Head of which only Seq is known, then the frame is searched for. The first frame
// may begin at or before after.Seq. ErrGone if the log begins later than after.Seq+1.
func (l *Log) Page(ctx context.Context, k Key, after, head Head, size int) ([]Frame, error) {
	if after.Seq >= head.Seq {
		return nil, nil
	}
	pos := after.Pos + 1
	if after.Pos == 0 {
		frames, ok, err := l.recent(ctx, k, after.Seq, head, 4*size)
		if ok || err != nil {
			return cut(frames, size), err
		}
		if pos, err = l.locate(ctx, k, after.Seq+1, head); err != nil {
			return nil, fmt.Errorf("read %s after %d: %w", k, after.Seq, err)
		}
	}
	var page []Frame
	var failed error
	got := 0
	l.readFrom(ctx, k, after.Seq, pos, head, size, func(f Frame, err error) bool {
		if err != nil {
			failed = err
			return false
		}
		page = append(page, f)
		got += len(f.Data)
		return got < size
	})
	if len(page) > 0 {
		return page, nil // what failed after it shows again on the next page
	}
	return nil, failed
}

// cut returns the first frames, as many as come to size bytes.
func cut(frames []Frame, size int) []Frame {
	for i, f := range frames {
		if size -= len(f.Data); size <= 0 {
			return frames[:i+1]
		}
	}
	return frames
}
