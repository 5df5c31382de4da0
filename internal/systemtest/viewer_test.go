package systemtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	runlogclient "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

// A viewer follows a run as a program does that uses the client: it comes back by itself, to whichever edge is up.
type viewer struct {
	run     run
	done    chan struct{}
	noticed func() // called for every event, if set

	mu      sync.Mutex
	changed sync.Cond
	list    []event.Event // of the log
	err     error
	over    bool
}

// client is one that prefers the i-th edge.
func (p *production) client(i int) *runlogclient.Client {
	return &runlogclient.Client{BaseURL: p.at[i].url, Fallbacks: []string{p.at[1-i].url}, Key: p.at[i].key, HTTP: client, Idle: 5 * time.Second}
}

// watch begins to follow a run, at the i-th edge first.
func (p *production) watch(t testing.TB, r run, i int) *viewer {
	t.Helper()
	v := &viewer{run: r, done: make(chan struct{})}
	v.changed.L = &v.mu
	ctx, stop := context.WithTimeout(t.Context(), 3*patience)
	go v.follow(ctx, p.client(i))
	t.Cleanup(func() { stop(); <-v.done })
	return v
}

func (v *viewer) follow(ctx context.Context, c *runlogclient.Client) {
	defer close(v.done)
	for e, err := range c.RunEvents(ctx, v.run.RunID, runlogclient.EventOptions{}) {
		v.mu.Lock()
		if err != nil {
			v.err = err
		} else if e.ID != "" {
			v.list = append(v.list, e)
			if v.noticed != nil {
				v.noticed()
			}
		}
		v.changed.Broadcast()
		v.mu.Unlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	v.changed.Broadcast()
}

// sees waits until the viewer has seen an event of a type, n times.
func (v *viewer) sees(t testing.TB, kind event.Type, n int) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for count(v.list, kind) < n {
		if v.over {
			t.Fatalf("run %s is over without %d times %s: %v", v.run.RunID, n, kind, v.err)
		}
		v.changed.Wait()
	}
}

// story waits for the run's end, checks its log, and that the viewer has seen just what the log holds.
func (v *viewer) story(t testing.TB, e edge) []event.Event {
	t.Helper()
	<-v.done
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		t.Fatalf("the viewer of %s gave up after %d events: %v", v.run.RunID, len(v.list), v.err)
	}
	log := checkLog(t, e, v.run.SessionID)
	if want := ofRun(log, v.run.RunID); !slices.EqualFunc(v.list, want, same) {
		t.Errorf("the viewer of %s has seen %d events, the log has %d", v.run.RunID, len(v.list), len(want))
	}
	return log
}

// completed is the story of a run that has to have succeeded, with its end state.
func (v *viewer) completed(t testing.TB, e edge) ([]event.Event, *event.Session) {
	t.Helper()
	log := v.story(t, e)
	s := fold(t, log)
	if r := s.Run(v.run.RunID); r == nil || r.Status != event.Completed {
		t.Errorf("run %s: %+v", v.run.RunID, r)
	}
	return log, s
}

// said is the text of a run's last message.
func said(s *event.Session, runID string) string {
	text := ""
	for _, m := range s.Messages {
		if m.RunID != runID || m.Role != event.RoleAssistant {
			continue
		}
		text = ""
		for _, part := range m.Parts {
			if part.Type == event.PartText {
				text += part.Text
			}
		}
	}
	return text
}
