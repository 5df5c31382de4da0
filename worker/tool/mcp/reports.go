package mcp

import (
	"sync"

	"github.com/runlog-dev/runlog/event"
)

// reports brings progress to the calls that are running. What comes for any
// other token is late, and dropped. The zero value is ready.
type reports struct {
	mu      sync.Mutex
	byToken map[string]*report
}

type report struct {
	mu   sync.Mutex // held while fn runs, so that none runs after expire
	fn   func(event.Progress)
	over bool
}

// expect routes reports for token to fn until the returned function is called;
// fn does not run after that has returned.
func (r *reports) expect(token string, fn func(event.Progress)) (expire func()) {
	entry := &report{fn: fn}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byToken == nil {
		r.byToken = map[string]*report{}
	}
	r.byToken[token] = entry
	return func() {
		r.mu.Lock()
		delete(r.byToken, token)
		r.mu.Unlock()
		entry.mu.Lock()
		entry.over = true
		entry.mu.Unlock()
	}
}

func (r *reports) deliver(token string, p event.Progress) {
	r.mu.Lock()
	entry := r.byToken[token]
	r.mu.Unlock()
	if entry == nil {
		return
	}
	entry.mu.Lock()
	defer entry.mu.Unlock()
	if !entry.over {
		entry.fn(p)
	}
}
