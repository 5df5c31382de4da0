package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// takenOver is how many sessions a killed worker leaves.
const takenOver = 20

// takeover kills the worker that has all sessions, and measures until a client of
// each sees the first event of the next owner.
func takeover(b *bench) ([]row, error) {
	var rows []row
	for text := range strings.SplitSeq(b.leases, ",") {
		lease, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("-leases: %w", err)
		}
		took, err := b.takeovers(lease)
		if err != nil {
			return nil, err
		}
		worst := took.at(1)
		rows = append(rows, row{fmt.Sprintf("`kill -9` of a worker with %d sessions → first event of the next owner, lease %s: the last one", takenOver, lease),
			"≤ 2 leases", fmt.Sprintf("%.2f leases (%.1f s; the first %.1f s)", float64(worst)/float64(lease), worst.Seconds(), took.at(0).Seconds()), worst <= 2*lease})
	}
	return rows, nil
}

func (b *bench) takeovers(lease time.Duration) (times, error) {
	s, err := b.newSite(lease)
	if err != nil {
		return nil, err
	}
	defer s.close()
	owner, err := s.worker(2 * takenOver)
	if err != nil {
		return nil, err
	}
	followers, err := s.streams("takeover", takenOver)
	if err != nil {
		return nil, err
	}
	rounds := b.rounds
	if lease > 2*time.Second {
		rounds = 1
	}
	var all times
	for range rounds {
		next, err := s.worker(2 * takenOver)
		if err != nil {
			return nil, err
		}
		killed := time.Now()
		owner.kill()
		owner = next
		took, err := recovered(followers, killed)
		if err != nil {
			return nil, err
		}
		all = append(all, took...)
	}
	return all, nil
}

// streams starts so many runs that talk until somebody ends them, and follows
// them; each has said something when it returns.
func (s *site) streams(key string, n int) ([]*follower, error) {
	list := make([]*follower, n)
	for i := range list {
		r, err := s.submit("live", "", fmt.Sprintf("stream %s%d", key, i))
		if err != nil {
			return nil, err
		}
		if list[i], err = s.follow(r.RunID); err != nil {
			return nil, err
		}
	}
	for _, f := range list {
		if _, err := f.until(ofType("text.delta")); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// recovered waits until each run has a new owner and talks again.
func recovered(list []*follower, since time.Time) (times, error) {
	took, errs := make(times, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	for i, f := range list {
		wg.Go(func() {
			e, err := f.until(ofType("run.recovered"))
			if took[i], errs[i] = e.at.Sub(since), err; err == nil {
				_, errs[i] = f.until(ofType("text.delta"))
			}
		})
	}
	wg.Wait()
	return took, firstOf(errs)
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
