package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/runlog-dev/runlog/worker/child"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A link is one connection to the server, with its process if it has one.
type link struct {
	server  *Server
	session *sdk.ClientSession
	proc    *child.Process // nil over HTTP
	done    chan struct{}  // closed when the session is over

	users   int  // calls and listings on it; guarded by server.mu
	retired bool // close it when the last user leaves; guarded by server.mu

	listing chan struct{} // held while tools is read or renewed
	tools   []tool.Tool
	stale   atomic.Bool // the server said that its tools have changed
}

// A dial is one attempt to connect. link and err are set before done is closed.
type dial struct {
	done chan struct{}
	link *link
	err  error
}

var errClosed = errors.New("it was closed")

// patience is how long a caller waits for an attempt that is not yet due.
const patience = time.Second

// acquire returns the live link, connecting if there is none. Release it.
func (s *Server) acquire(ctx context.Context) (*link, error) {
	for {
		l, d, err := s.linkOrDial()
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-d.done:
			if d.err != nil {
				return nil, d.err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the connection: %w", ctx.Err())
		}
	}
}

// linkOrDial returns the link with one more user, or an attempt to wait for.
func (s *Server) linkOrDial() (*link, *dial, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, nil, errClosed
	case s.link != nil:
		s.link.users++
		return s.link, nil, nil
	case s.dialing != nil:
		return nil, s.dialing, nil
	}
	wait := time.Until(s.nextTry)
	if wait > patience {
		return nil, nil, fmt.Errorf("%w (next attempt in %s)", s.lastErr, wait.Round(time.Second))
	}
	d := &dial{done: make(chan struct{})}
	s.dialing = d
	s.wg.Go(func() { s.connect(d, wait) })
	return nil, d, nil
}

// connect makes one attempt after wait. It belongs to no caller, so that one who
// gives up does not end it for the others.
func (s *Server) connect(d *dial, wait time.Duration) {
	defer close(d.done)
	select {
	case <-time.After(wait):
	case <-s.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.ConnectTimeout)
	defer cancel()
	d.link, d.err = s.open(ctx)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing = nil
	switch {
	case s.closed:
		if d.link != nil {
			d.link.close()
		}
		d.err = errClosed
	case d.err != nil:
		s.log.Warn("mcp server not reached", "err", d.err)
		s.backOff(d.err)
	default:
		s.link = d.link
	}
}

// backOff notes a failure: the first attempt after it is free, the others wait
// 100 ms, 200 ms, … 10 s. The caller holds mu.
func (s *Server) backOff(err error) {
	s.failures++
	s.lastErr = err
	if s.failures > 1 {
		wait := 100 * time.Millisecond << min(s.failures-2, 10)
		s.nextTry = time.Now().Add(min(wait, 10*time.Second))
	}
}

// answered forgets the failures: the server works.
func (s *Server) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.nextTry = 0, time.Time{}
}

func (s *Server) release(l *link) {
	s.mu.Lock()
	l.users--
	last := l.users == 0 && l.retired
	s.mu.Unlock()
	if last {
		l.close()
	}
}

// discard takes a broken link out of use. It is closed when its last user has
// left, so that calls that may still be answered are.
func (s *Server) discard(l *link, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.retired = true
	if s.link != l {
		return
	}
	s.link = nil
	s.log.Warn("mcp server lost", "err", err)
	s.backOff(err)
}

// watch waits for the end of the session, whoever ends it.
func (l *link) watch() {
	err := l.session.Wait()
	if l.proc != nil {
		l.proc.Stop()
		<-l.proc.Done()
		err = l.proc.Cause(err)
	}
	close(l.done)
	if err == nil {
		err = errors.New("it closed the connection")
	}
	l.server.discard(l, err)
}

// close ends the connection. It does not wait; when it has ended, watch does.
func (l *link) close() {
	if l.proc != nil {
		l.proc.Stop()
	}
	go l.session.Close() // it waits until every call has returned
}
