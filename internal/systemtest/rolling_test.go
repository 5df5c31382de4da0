package systemtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// Every worker is restarted, one after the other, while runs are live whose tools must not be repeated: none fails,
// nothing is executed twice, and the viewers see just what the log holds.
func TestWorkersAreRestartedUnderLiveRuns(t *testing.T) {
	const live = 100
	p := startProductionOn(t, testservers.NATS(t, 3), "RUNLOG_GRACE=20s", "RUNLOG_SLOTS=128")
	defer p.complaints(t)
	var viewers []*viewer
	for i := range live {
		viewers = append(viewers, p.watch(t, p.at[i%2].submit(t, request{Agent: "patient", SessionID: fmt.Sprint("live-", i), Input: "sleep"}), i%2))
	}
	for _, v := range viewers {
		v.sees(t, event.ToolRunning, 1)
	}
	for i := range p.worker {
		began := time.Now()
		p.worker[i].Stop()
		t.Logf("worker %d was gone after %v", i, time.Since(began).Round(10*time.Millisecond))
		p.worker[i].again()
	}
	var gaps []time.Duration
	for _, v := range viewers {
		log, s := v.completed(t, p.at[0])
		if got := said(s, v.run.RunID); got != "Awake." {
			t.Errorf("run %s says %q", v.run.RunID, got)
		}
		p.ledger.once(t, v.run.RunID, "sleep", "sleep", "sleep", "sleep", "sleep", "sleep")
		gaps = append(gaps, handedOver(log)...)
	}
	if len(gaps) < live {
		t.Errorf("%d runs were handed over %d times", live, len(gaps))
	}
	slices.Sort(gaps)
	t.Logf("%d runs, handed over %d times; from the release to the next owner: median %v, at most %v",
		live, len(gaps), gaps[len(gaps)/2], gaps[len(gaps)-1])
	t.Log(p.command("fsck"))
}

// handedOver are the times that a session had no owner although it had a run.
func handedOver(log []event.Event) (gaps []time.Duration) {
	var since time.Time
	for _, e := range log {
		switch e.Type {
		case event.SessionReleased:
			since = e.Time.Time
		case event.RunRecovered:
			gaps = append(gaps, e.Time.Sub(since).Round(time.Millisecond))
		}
	}
	return gaps
}
