package runlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errIdle is the cause of death of a connection that went silent.
var errIdle = errors.New("connection silent")

// A watch cancels a request whose answer stays away for too long. It runs only
// while somebody waits for bytes, so that a slow reader is not taken for a
// silent server.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	idle   time.Duration
}

func newWatch(ctx context.Context, idle time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{ctx: ctx, cancel: cancel, idle: idle}
	w.timer = time.AfterFunc(idle, func() { cancel(errIdle) })
	w.timer.Stop()
	return ctx, w
}

func (w *watch) start() { w.timer.Reset(w.idle) }
func (w *watch) pause() { w.timer.Stop() }

func (w *watch) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// explain replaces "context canceled" by the reason.
func (w *watch) explain(err error) error {
	if errors.Is(context.Cause(w.ctx), errIdle) {
		return fmt.Errorf("no byte for %v: %w", w.idle, errIdle)
	}
	return err
}

// watchedBody is a response's body under watch.
type watchedBody struct {
	io.ReadCloser
	watch *watch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.watch.start()
	n, err := b.ReadCloser.Read(p)
	b.watch.pause()
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.watch.explain(err)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.watch.end()
	return err
}
