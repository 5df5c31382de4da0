package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/recorder"
)

// restoredCommand is a step of every restore of JetStream: see docs/operations.md.
func restoredCommand(ctx context.Context, args []string) error {
	s, err := parse("restored", args, storeSettings)
	if err != nil {
		return err
	}
	st, err := s.openAs(ctx, "restored")
	if err != nil {
		return err
	}
	return errors.Join(s.restored(ctx, st), st.close())
}

func (s *settings) restored(ctx context.Context, st *stores) error {
	did, err := st.log.Restore(ctx, progress(os.Stderr, "sessions"))
	if err != nil {
		return err
	}
	fmt.Printf("the log is in epoch %s: %d sessions, %d of them go on, %d runs of the runs index are lost\n", did.Epoch, did.Sessions, did.Ticketed, did.Lost)
	if err := recorder.New(st.log, st.catalog, recorder.Options{Log: s.log}).Reindex(ctx); err != nil {
		return fmt.Errorf("run `runlog reindex` before anything else: %w", err)
	}
	fmt.Println("the catalog is rebuilt from the log")
	return nil
}

// tellEvery is the pause between what somebody who waits is told.
const tellEvery = 2 * time.Second

// progress tells how many of something are done, now and then.
func progress(w io.Writer, of string) func(done, all int) {
	last := time.Now()
	return func(done, all int) {
		if now := time.Now(); now.Sub(last) >= tellEvery {
			last = now
			fmt.Fprintf(w, "%d of %d %s\n", done, all, of)
		}
	}
}

const (
	// guardEvery is how often a process compares itself with the log.
	guardEvery = 5 * time.Second
	// guardTries is how often the log has to be too short: a leader that was just elected
	// may not know its end yet.
	guardTries = 3
)

// fits returns an error if the log was restored and nobody has said so. It is for the start
// of a process. What cannot be found out now does not keep it from starting.
func (s *settings) fits(ctx context.Context, st *stores) error {
	for try := 1; ; try++ {
		err := st.fit(ctx)
		if !errors.Is(err, recorder.ErrAhead) {
			return ctx.Err()
		}
		if try == guardTries {
			return err
		}
		s.log.Error("not started yet", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// guard ends the process when the log is restored under it: what it has in memory may be of
// what was lost. It returns nil when ctx ends.
func (s *settings) guard(ctx context.Context, st *stores) error {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for short := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := st.sameEpoch(ctx); errors.Is(err, eventlog.ErrRestored) {
			return err
		}
		err := st.fit(ctx)
		if !errors.Is(err, recorder.ErrAhead) {
			short = 0
			continue
		}
		if short++; short == guardTries {
			return err
		}
	}
}

// fit compares the log with the catalog; one that hangs is not waited for.
func (st *stores) fit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, guardEvery)
	defer cancel()
	return recorder.Fits(ctx, st.log, st.catalog)
}

func (st *stores) sameEpoch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, guardEvery)
	defer cancel()
	return st.log.SameEpoch(ctx)
}
