package deploy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// Sessions of megabytes that all go on at once, before viewers that are told the whole state at each step (LangGraph's
// values) and do not read it, take no more than the edge's memory.
func TestStatesOfManySessionsStayWithinMemory(t *testing.T) {
	const memory, sessions, viewers = 96 << 20, 12, 2
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), fmt.Sprintf("RUNLOG_LOG=error\nRUNLOG_PING=15s\nRUNLOG_WRITE_TIMEOUT=2s\nRUNLOG_MEMORY=%d", memory), "RUNLOG_MEMORY=0")
	var all [sessions]*scribe
	var paths []string
	for i := range all {
		name := fmt.Sprint("s", i)
		all[i] = f.stateOf(t, name, 10, 512<<10)
		for range viewers {
			paths = append(paths, fmt.Sprintf("/langgraph/threads/%s/runs/run-%s/stream?stream_mode=values&last_event_id=%d", name, name, all[i].seq))
		}
	}
	stop := watchResident(t, f.edges[0].PID())
	slow := askSlowly(t, f.addrs[0], paths)
	taken := 0
	for _, a := range slow {
		if a.StatusCode == 200 {
			taken++
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 2 {
		var steps errgroup.Group
		for _, s := range all {
			steps.Go(func() error { return s.complete(ctx, "and on", 100) })
		}
		if err := steps.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	url := "http://" + f.addrs[0]
	for ; ; time.Sleep(50 * time.Millisecond) { // until those who do not read have been cut off
		resp, _, err := send(ctx, "GET", url+"/langgraph/threads/s0/state", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == 200 {
			break
		}
	}
	peak := stop()
	t.Logf("%d of %d were taken; %d MiB at most", taken, len(slow), peak>>20)
	if taken == 0 || peak > memory+memory/16 { // to make a state takes several times its size for a moment
		t.Errorf("the edge takes %d MiB of %d", peak>>20, memory>>20)
	}
}

// stateOf writes a session with a run under way that has said so many messages, and keeps its fold as workers do.
func (f *front) stateOf(t *testing.T, session string, messages, size int) *scribe {
	t.Helper()
	ctx, k := t.Context(), eventlog.Key{Tenant: "default", Session: session}
	ref, _, err := f.log.Reserve(ctx, "default", "", eventlog.RunRef{RunID: "run-" + session, SessionID: session, TraceID: "trace-run-" + session, Agent: "demo"})
	if err == nil {
		err = f.log.Accept(ctx, ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.scribe(ctx, session, "run-"+session)
	for m := 0; m < messages && err == nil; m++ {
		err = s.complete(ctx, fmt.Sprint("m", m), size)
	}
	if err != nil {
		t.Fatal(err)
	}
	fold, _, err := f.log.Load(ctx, k)
	if err == nil {
		err = f.log.SaveSnapshot(ctx, k, fold.Encode(), fold.Seq)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// complete writes a message of a size.
func (s *scribe) complete(ctx context.Context, id string, size int) error {
	text := fmt.Sprintf("%0*d", size, s.seq)
	return s.write(ctx, event.MessageCompleted, event.MessageCompletedData{MessageID: fmt.Sprint(id, s.seq), Role: event.RoleAssistant, Parts: []event.Part{{Type: event.PartText, Text: text}}})
}
