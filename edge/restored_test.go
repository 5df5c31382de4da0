package edge_test

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// loseEnd takes the events after a seq out of the log, as a restore of an older backup does,
// and says that it was restored. Logs that are opened afterwards are of the new epoch.
func (s *site) loseEnd(session string, after event.Seq) event.Epoch {
	s.t.Helper()
	k := eventlog.Key{Tenant: "default", Session: session}
	head, err := s.log.Head(s.t.Context(), k)
	for err == nil && head.Seq > after {
		if err = s.logStream().DeleteMsg(s.t.Context(), head.Pos); err == nil {
			head, err = s.log.Head(s.t.Context(), k)
		}
	}
	s.log = s.open(eventlog.Options{})
	did, restoreErr := s.log.Restore(s.t.Context(), nil)
	if err != nil || restoreErr != nil {
		s.t.Fatal(err, restoreErr)
	}
	return did.Epoch
}

// A restoredSite has a run of 10 events, of which 6 were in the backup. It went on to 14 after
// the restore, and is over.
func restoredSite(t *testing.T) (s *site, epoch event.Epoch) {
	s = newSite(t)
	s.index("r", "s")
	w := s.scribe("default", "s")
	w.write(started("r"))
	for i := range 9 {
		w.write(said("r", "lost "+strconv.Itoa(i+2)))
	}
	epoch = s.loseEnd("s", 6)
	w = s.scribe("default", "s")
	for i := range 7 {
		w.write(said("r", "new "+strconv.Itoa(i+7)))
	}
	w.write(completed("r"))
	return s, epoch
}

// every reads a stream to its end, messages without a name as well.
func (e *edgeNode) every(path string, header ...string) (all []message) {
	l := e.listen(path, header...)
	for {
		m, err := l.any()
		if err == io.EOF {
			return all
		}
		if err != nil {
			e.t.Fatal(err)
		}
		all = append(all, m)
	}
}

// Who has seen what a restore has lost gets a reset, in each dialect; all others go on. The ids
// of events that were there before the restore stay what they were.
func TestPositionsOutliveARestore(t *testing.T) {
	s, epoch := restoredSite(t)
	e := s.edge(edge.Options{})
	for _, name := range []string{"native", "plain", "agui", "parts", "agents", "langgraph", "rpc", "a2a", "v1"} {
		t.Run(name, func(t *testing.T) {
			path := "/v1/runs/r/events?dialect=" + name
			all := e.every(path)
			for i, m := range all {
				if m.id == "" {
					continue
				}
				if i == len(all)-1 {
					wantStatus(t, e.do("GET", path, "", "Last-Event-ID", m.id), 204)
				} else if got := e.every(path, "Last-Event-ID", m.id); !slices.Equal(got, all[i+1:]) {
					t.Errorf("after %s: %v, want %v", m.id, got, all[i+1:])
				}
				if at := identified(t, all[i:i+1])[0]; (m.id[0] < '7' && (len(m.id) == 1 || m.id[1] == '.')) != (at.Epoch == 0) {
					t.Errorf("there is an id %s", m.id)
				}
			}
			head := "14~" + epoch.String()
			for _, old := range []string{"7", "10", "7.0", "10~1", "99", "6~1"} {
				got := e.every(path, "Last-Event-ID", old)
				if ids := identified(t, got); len(got) == 0 || len(ids) != 1 || ids[0].String() != head {
					t.Errorf("after %s: %v, want a reset at %s", old, got, head)
				} else if name == "native" && got[0].event != "reset" {
					t.Errorf("after %s: %v", old, got)
				}
			}
			ahead := as[problem](t, wantStatus(t, e.do("GET", path, "", "Last-Event-ID", "15~"+epoch.String()), 409))
			if ahead.Head != 14 {
				t.Errorf("a position that no restore explains: %+v", ahead)
			}
		})
	}
}

// A client of lines, or of a WebSocket, gets what it needs to come back as well; so does one of
// many sessions.
func TestEveryTransportOutlivesARestore(t *testing.T) {
	s, epoch := restoredSite(t)
	e := s.edge(edge.Options{})
	line := e.listen("/v1/sessions/s/events?follow=false&after=9", "Accept", "application/x-ndjson").must()
	if want := fmt.Sprintf(`{"type":"reset","id":"14~%s",`, epoch); !strings.HasPrefix(line.data, want) {
		t.Errorf("lines begin with %.80s, want %s", line.data, want)
	}
	for _, old := range []string{"8", "99"} {
		got := e.listen("/v1/stream?follow=false&session=s/" + old).rest()
		if len(got) != 1 || got[0].event != "reset" || !strings.HasSuffix(got[0].id, "~14~"+epoch.String()) {
			t.Fatalf("many after %s: %v", old, got)
		}
		if again := e.listen("/v1/stream?follow=false&session=s", "Last-Event-ID", got[0].id).rest(); len(again) != 0 {
			t.Errorf("many after %s: %v", got[0].id, again)
		}
	}
}

// A viewer who is shown merged deltas comes back to where the last one was.
func TestMergedDeltasOutliveARestore(t *testing.T) {
	s, epoch := restoredSite(t)
	got := s.edge(edge.Options{}).listen("/v1/sessions/s/events?follow=false&catchup=merged&after=1").rest()
	if len(got) != 2 || got[0].id != "13~"+epoch.String() || !strings.Contains(got[0].data, "lost 6new 7") {
		t.Errorf("got %v", got)
	}
}
