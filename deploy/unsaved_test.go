package deploy

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// Hundreds of clients that ask at once for one large conversation, whose fold no worker has stored, and do not read it
// take no more than the edge's memory. Streams share what they are told, so all of them are taken.
func TestAllAskForOneConversation(t *testing.T) {
	for _, c := range []struct {
		name, path string
		often      bool // in each run of the tests
		shared     bool
	}{
		{"streams that begin with it", "/v1/sessions/large/events?snapshot=1", true, true},
		{"streams that may begin with it", "/v1/sessions/small/events?catchup=snapshot&after=1", false, true},
		{"streams in another protocol", "/v1/sessions/large/events?snapshot=1&dialect=agui", false, true},
		{"answers", "/v1/sessions/large/snapshot", true, false},
		{"answers of small events", "/v1/sessions/small/messages", false, false},
	} {
		if c.often || os.Getenv("RUNLOG_SOAK") != "" {
			t.Run(c.name, func(t *testing.T) { askAllAtOnce(t, c.path, c.shared) })
		}
	}
}

func askAllAtOnce(t *testing.T, path string, shared bool) {
	const memory, many = 96 << 20, 300
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), fmt.Sprintf("RUNLOG_LOG=error\nRUNLOG_PING=15s\nRUNLOG_WRITE_TIMEOUT=%s\nRUNLOG_MEMORY=%d", patience, memory), "RUNLOG_MEMORY=0")
	f.history(t, "large", 20, 512<<10, 512<<10)
	f.history(t, "small", 20, 512<<10, 512)
	stop := watchResident(t, f.edges[0].PID())
	ask := func(n int) int {
		slow := askSlowly(t, f.addrs[0], slices.Repeat([]string{path}, n))
		return len(slices.DeleteFunc(slow, func(a slowAnswer) bool { return a.StatusCode != 200 }))
	}
	taken := ask(many)
	for tries := 0; shared && taken < many && tries < 5; tries++ { // to make one may take longer than they are patient
		taken += ask(many - taken)
	}
	peak := stop()
	t.Logf("%d of %d were taken; %d MiB at most", taken, many, peak>>20)
	if peak > memory+memory/8 { // what the collector cannot keep below the ceiling is little
		t.Errorf("the edge takes %d MiB of %d", peak>>20, memory>>20)
	}
	if shared && taken < many || taken == 0 {
		t.Errorf("%d of %d were taken", taken, many)
	}
}
