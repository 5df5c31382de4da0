package agent

import "time"

// maxGathered is where a gathered delta is written without waiting.
const maxGathered = 8 << 10

// gather writes the first piece at once and later ones at most once a window.
func (a *answer) gather(text string, write func(string) error) error {
	a.flusher = func() error { return a.writePending(write) }
	a.pending.WriteString(text)
	wait := a.run.Tunables.Window - time.Since(a.sent)
	if wait <= 0 || a.pending.Len() > maxGathered {
		return a.flushPending()
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, a.onWindow)
	}
	return nil
}

func (a *answer) writePending(write func(string) error) error {
	text := a.pending.String()
	a.pending.Reset()
	a.sent = time.Now()
	return write(text)
}

func (a *answer) onWindow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = nil
	var err error
	func() {
		defer Caught(&err)
		err = a.flushPending()
	}()
	if err != nil && a.err == nil {
		a.err = err
	}
}

func (a *answer) flushPending() error {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if a.pending.Len() == 0 {
		return nil
	}
	return a.flusher()
}

// settle writes what is gathered, so that something else may follow it.
func (a *answer) settle() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.err
	}
	return a.flushPending()
}

// drop forgets what is gathered: nothing is written after it.
func (a *answer) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	a.pending.Reset()
}
