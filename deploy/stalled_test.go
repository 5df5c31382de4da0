package deploy

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// Hundreds of clients that stop reading in the middle of a history, however large its events are and however they are
// told, take no more than the edge's memory, and whoever reads is told all of it meanwhile.
func TestStalledReadersStayWithinMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		often bool // in each run of the tests
		paths []string
	}{
		{"merged events", true, []string{"/v1/sessions/large/events?catchup=merged"}},
		{"large events", false, []string{"/v1/sessions/large/events"}},
		{"small events", false, []string{"/v1/sessions/small/events", "/v1/sessions/small/events?catchup=merged"}},
		{"many sessions", false, []string{"/v1/stream?session=large&session=small"}},
	} {
		if c.often || os.Getenv("RUNLOG_SOAK") != "" {
			t.Run(c.name, func(t *testing.T) { stall(t, slices.Repeat(c.paths, 300/len(c.paths))) })
		}
	}
}

func stall(t *testing.T, paths []string) {
	const memory = 96 << 20
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), fmt.Sprintf("RUNLOG_LOG=error\nRUNLOG_PING=15s\nRUNLOG_WRITE_TIMEOUT=2s\nRUNLOG_MEMORY=%d", memory), "RUNLOG_MEMORY=0")
	f.history(t, "large", 20, 512<<10, 512<<10)
	events := f.history(t, "small", 20, 512<<10, 512)
	stop := watchResident(t, f.edges[0].PID())
	slow := askSlowly(t, f.addrs[0], paths)
	taken := len(slices.DeleteFunc(slow, func(a slowAnswer) bool { return a.StatusCode != 200 }))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := &runlog.Client{BaseURL: "http://" + f.addrs[0]}
	read := event.Seq(0)
	for e, err := range client.SessionEvents(ctx, "small", runlog.EventOptions{}) {
		if err != nil || e.Seq > read+1 {
			t.Fatalf("%d events of %d were read, then: %d %v", read, events, e.Seq, err)
		}
		if read = max(read, e.Seq); read == events {
			break
		}
	}
	peak := stop()
	t.Logf("%d of %d were taken; %d MiB at most", taken, len(slow), peak>>20)
	if peak > memory {
		t.Errorf("the edge takes %d MiB of %d", peak>>20, memory>>20)
	}
}

// Clients that stop reading while large events come live take no more than the edge's memory either: each of their
// sessions has other events, and each would keep one. Those who have stopped longest are broken off; who reads gets all.
func TestStalledViewersStayWithinMemory(t *testing.T) {
	const memory, sessions, events, size = 96 << 20, 80, 9, 600 << 10
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), fmt.Sprintf("RUNLOG_LOG=error\nRUNLOG_PING=15s\nRUNLOG_MEMORY=%d", memory), "RUNLOG_MEMORY=0")
	s := f.fullSession(t)
	_, reader, _ := knock(t, f.addrs[0])
	var live []*scribe
	var paths []string
	for i := range sessions {
		w, err := f.scribe(t.Context(), fmt.Sprint("live", i), "run-live")
		if err != nil {
			t.Fatal(err)
		}
		live, paths = append(live, w), append(paths, fmt.Sprintf("/v1/sessions/live%d/events?after=1", i))
	}
	slow := askSlowly(t, f.addrs[0], paths)
	stop := watchResident(t, f.edges[0].PID())
	text := strings.Repeat("x", size)
	for e := range events {
		for i, w := range live {
			if err := w.say(t.Context(), text); err != nil {
				t.Fatal(err)
			}
			if i%10 > 0 {
				continue
			}
			mark := fmt.Sprintf("mark-%d-%d", e, i) // the edge has shown all that came before
			if err := s.say(t.Context(), mark); err != nil {
				t.Fatal(err)
			}
			if err := readTo(reader, mark); err != nil {
				t.Fatalf("who reads: %v", err)
			}
		}
	}
	peak := stop()
	t.Logf("%d clients; %d MiB at most", len(slow), peak>>20)
	if peak > memory+memory/8 { // what the collector cannot keep below the ceiling is little
		t.Errorf("the edge takes %d MiB of %d", peak>>20, memory>>20)
	}
}

// history writes a session of so many messages of a size, in deltas of another, as many in a frame as workers put there.
func (f *front) history(t *testing.T, session string, messages, size, each int) event.Seq {
	t.Helper()
	s, err := f.scribe(t.Context(), session, "run-"+session)
	events := event.Seq(1)
	for m := 0; m < messages && err == nil; m++ {
		id := fmt.Sprint("m", m)
		for said := 0; said < size && err == nil; {
			var list []event.Event
			for n := 0; n < 64<<10 && said < size; n += each {
				e := event.New(event.TextDelta, event.TextDeltaData{MessageID: id, Delta: strings.Repeat("x", each)})
				e.RunID, e.TraceID = s.run, "trace-"+s.run
				list = append(list, e)
				said += each
			}
			_, err = s.w.Append(list...)
			events += event.Seq(len(list))
		}
		if err == nil {
			err = s.write(t.Context(), event.MessageCompleted, event.MessageCompletedData{MessageID: id, Role: event.RoleAssistant, Parts: []event.Part{{Type: event.PartText, Text: strings.Repeat("x", size)}}})
			events++
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return events
}
