package worker

import (
	"context"
	"slices"

	"github.com/runlog-dev/runlog/eventlog"
)

// A seat is a slot that waits for a ticket.
type seat struct {
	given chan *eventlog.Ticket
	rise  context.CancelFunc // ends the wait
}

// sit takes a seat until rise; ctx ends when a ticket is given to it.
func (w *Worker) sit(ctx context.Context) (context.Context, *seat) {
	s := &seat{given: make(chan *eventlog.Ticket, 1)}
	ctx, s.rise = context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seats = append(w.seats, s)
	return ctx, s
}

// free is how many slots wait for a ticket.
func (w *Worker) free() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seats)
}

// leave returns the ticket that was given to the seat, nil if none was.
func (w *Worker) leave(s *seat) *eventlog.Ticket {
	s.rise()
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.seats, s); i >= 0 {
		w.seats = slices.Delete(w.seats, i, i+1)
		return nil
	}
	return <-s.given
}

// give gives a ticket to a free slot, if there is one.
func (w *Worker) give(t *eventlog.Ticket) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.seats) - 1
	if last < 0 {
		return false
	}
	s := w.seats[last]
	w.seats = w.seats[:last]
	s.given <- t
	s.rise()
	return true
}
