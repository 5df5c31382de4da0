package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	parkedRuns = 10_000
	parkedWarm = 1000 // before the worker's memory is looked at first
	briefRuns  = 3000 // that expire
	wakes      = 200
)

// parked measures runs that wait for their client: what they cost the worker, how
// fast they go on when the answer comes, and how fast they come and go.
func parked(b *bench) ([]row, error) {
	s, w, err := b.staffedSite(64)
	if err != nil {
		return nil, err
	}
	defer s.close()
	watch, err := s.watch()
	if err != nil {
		return nil, err
	}
	defer watch.close()
	if _, err := s.park("ask", parkedWarm, watch); err != nil {
		return nil, err
	}
	before, err := settledFootprint(w)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	runs, err := s.park("ask", parkedRuns, watch)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := settledFootprint(w)
	if err != nil {
		return nil, err
	}
	cost := after.minus(before)
	most := max(cost.heap+cost.stacks, cost.rss)
	rows := []row{
		{fmt.Sprintf("worker's memory by parked run, %d of them", parkedRuns), "≤ 1 KB", fmt.Sprintf("%.2f KB (%s)", float64(most)/parkedRuns/1024, cost.per(parkedRuns)), most <= parkedRuns<<10},
		{what: fmt.Sprintf("%d runs park, 64 clients", parkedRuns), got: fmt.Sprintf("%.1f s, %.0f a second", took.Seconds(), parkedRuns/took.Seconds())},
	}
	idle, err := s.wake(runs[:wakes])
	if err != nil {
		return nil, err
	}
	if _, err := s.streams("load", meanwhile); err != nil {
		return nil, err
	}
	busy, err := s.wake(runs[wakes : 2*wakes])
	if err != nil {
		return nil, err
	}
	expiry, err := s.expire(w, watch)
	return append(rows, wakeRow("answer sent → `run.status` running at a client, p99", idle),
		wakeRow(fmt.Sprintf("the same while %d runs stream", meanwhile), busy), expiry), err
}

func settledFootprint(w *proc) (footprint, error) {
	time.Sleep(settled)
	return footprintOf(w)
}

func wakeRow(what string, t times) row {
	p99 := t.at(.99)
	return row{what, "≤ 100 ms", fmt.Sprintf("%s (p50 %s)", ms(p99), ms(t.median())), p99 <= 100*time.Millisecond}
}

// park submits runs, 64 at a time, and waits until all are parked.
func (s *site) park(agent string, n int, watch *watch) ([]runRef, error) {
	goal := watch.count("session.released") + n
	runs, errs := make([]runRef, n), make([]error, 64)
	var wg sync.WaitGroup
	for c := range errs {
		wg.Go(func() {
			for i := c; i < n && errs[c] == nil; i += len(errs) {
				runs[i], errs[c] = s.submit(agent, "", "Ask me.")
			}
		})
	}
	wg.Wait()
	if err := firstOf(errs); err != nil {
		return nil, err
	}
	return runs, watch.until("session.released", goal)
}

// wake answers parked runs, one after the other.
func (s *site) wake(runs []runRef) (took times, err error) {
	for _, r := range runs {
		t, err := s.wakeOne(r)
		if err != nil {
			return nil, err
		}
		took = append(took, t)
	}
	return took, nil
}

func (s *site) wakeOne(r runRef) (time.Duration, error) {
	f, err := s.follow(r.RunID)
	if err != nil {
		return 0, err
	}
	defer f.close()
	call, err := f.until(ofType("tool.started"))
	if err != nil {
		return 0, err
	}
	if _, err := f.until(func(e seen) bool { return e.Type == "run.status" && e.Data.Status == "waiting_tool" }); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := post(s.edge.url()+"/v1/runs/"+r.RunID+"/tools/"+call.Data.CallID, map[string]string{"content": "Here."}, nil); err != nil {
		return 0, err
	}
	on, err := f.until(func(e seen) bool { return e.Type == "run.status" && e.Data.Status == "running" })
	if err != nil {
		return 0, err
	}
	_, err = f.until(ended)
	return on.at.Sub(began), err
}

// expire parks runs whose clients do not answer while no worker is there, and
// lets another one find all of them due.
func (s *site) expire(w *proc, watch *watch) (row, error) {
	done := watch.count("run.completed")
	if _, err := s.park("brief", briefRuns, watch); err != nil {
		return row{}, err
	}
	w.stop()
	time.Sleep(time.Until(watch.lastDue()) + time.Second)
	if _, err := s.worker(64); err != nil {
		return row{}, err
	}
	began := time.Now()
	if err := watch.until("run.completed", done+briefRuns); err != nil {
		return row{}, err
	}
	took := time.Since(began)
	return row{what: fmt.Sprintf("%d runs that expired while no worker was there: all ended, after a worker's start", briefRuns),
		got: fmt.Sprintf("%.1f s, %.0f a second", took.Seconds(), briefRuns/took.Seconds())}, nil
}

// A watch counts what is appended to all logs.
type watch struct {
	nc *nats.Conn

	mu      sync.Mutex
	changed *sync.Cond
	counts  map[string]int
	due     time.Time // the last end of a wait
}

func (s *site) watch() (*watch, error) {
	nc, err := nats.Connect("nats://" + s.server.addr)
	if err != nil {
		return nil, err
	}
	w := &watch{nc: nc, counts: map[string]int{}}
	w.changed = sync.NewCond(&w.mu)
	sub, err := nc.Subscribe("live.>", w.take)
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = nc.Flush()
	}
	return w, err
}

func (w *watch) close() { w.nc.Close() }

func (w *watch) take(m *nats.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for text := range bytes.Lines(m.Data) {
		var e struct {
			Type string
			Data struct {
				ExpiresAt time.Time `json:"expires_at"`
			}
		}
		if json.Unmarshal(text, &e) != nil || e.Type == "text.delta" {
			continue
		}
		w.counts[e.Type]++
		if e.Data.ExpiresAt.After(w.due) && e.Data.ExpiresAt.Before(time.Now().Add(time.Hour)) {
			w.due = e.Data.ExpiresAt
		}
	}
	w.changed.Broadcast()
}

func (w *watch) count(t string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[t]
}

// lastDue is when the last of those that wait for less than an hour gives up.
func (w *watch) lastDue() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.due
}

// until waits for so many events of a type.
func (w *watch) until(t string, n int) error {
	overdue := false
	timer := time.AfterFunc(3*time.Minute, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		overdue = true
		w.changed.Broadcast()
	})
	defer timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.counts[t] < n && !overdue {
		w.changed.Wait()
	}
	if w.counts[t] < n {
		return fmt.Errorf("%d of %d %s after 3 minutes", w.counts[t], n, t)
	}
	return nil
}
