package a2a_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/a2a"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func TestTranscripts(t *testing.T) { dialecttest.Run(t, a2a.Dialect{}, dialecttest.Options{}) }

// A client folds a stream as A2A says: an artifact replaces the one with its id,
// unless it is appended.
type client struct {
	tasks     int
	state     a2a.State
	message   string
	artifacts map[string]string
}

type streamed struct {
	Task         *a2a.Task
	StatusUpdate *struct{ Status a2a.Status }
	Artifact     *struct {
		Artifact struct {
			ArtifactID string
			Name       string
			Parts      []a2a.Part
			Metadata   struct{ Runlog struct{ Discarded string } }
		}
		Append bool
	} `json:"artifactUpdate"`
}

func (c *client) read(t *testing.T, list []dialect.Message) {
	t.Helper()
	for _, m := range list {
		var got streamed
		if err := json.Unmarshal(m.Data, &got); err != nil {
			t.Fatalf("%v: %s", err, m.Data)
		}
		switch {
		case got.Task != nil:
			c.tasks++
			c.artifacts = map[string]string{}
			c.status(got.Task.Status)
			for _, a := range got.Task.Artifacts {
				c.artifacts[a.ArtifactID] = words(a.Parts)
			}
		case got.StatusUpdate != nil:
			c.status(got.StatusUpdate.Status)
		case got.Artifact != nil:
			c.artifact(t, got)
		default:
			t.Fatalf("no StreamResponse: %s", m.Data)
		}
	}
}

func (c *client) status(s a2a.Status) {
	c.state, c.message = s.State, ""
	if s.Message != nil && s.State != a2a.Working {
		c.message = s.Message.MessageID + " " + words(s.Message.Parts)
	}
}

func (c *client) artifact(t *testing.T, got streamed) {
	t.Helper()
	a := got.Artifact.Artifact
	if a.Metadata.Runlog.Discarded != "" {
		delete(c.artifacts, a.ArtifactID)
		return
	}
	had, known := c.artifacts[a.ArtifactID]
	if got.Artifact.Append != (known && got.Artifact.Append) || len(a.Parts) == 0 {
		t.Errorf("artifact %s: append %v, known %v, %d parts", a.ArtifactID, got.Artifact.Append, known, len(a.Parts))
	}
	if !got.Artifact.Append {
		had = ""
	}
	c.artifacts[a.ArtifactID] = had + words(a.Parts)
}

func words(parts []a2a.Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Text != nil {
			b.WriteString(*p.Text)
		} else {
			fmt.Fprintf(&b, "[%s%s]", p.Data, p.URL)
		}
	}
	return b.String()
}

func (c *client) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q\n", c.state, c.message)
	for _, id := range slices.Sorted(maps.Keys(c.artifacts)) {
		fmt.Fprintf(&b, "%s: %q\n", id, c.artifacts[id])
	}
	return b.String()
}

// from reads a snapshot of the first n events, and the events after the skip-th.
func from(t *testing.T, log []event.Event, n, skip int) *client {
	t.Helper()
	c := &client{}
	x := a2a.Dialect{Run: scenarios.RunID, Base: "http://here"}.Begin()
	fold := event.NewSession(scenarios.SessionID)
	for _, e := range log[:n] {
		if err := fold.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	c.read(t, x.Snapshot(dialect.Snapshot, fold, dialect.Client))
	for _, e := range log[skip:] {
		if e.RunID == "" || e.RunID == scenarios.RunID || e.Agent != "" {
			c.read(t, x.Next(e, nil, dialect.Client))
		}
	}
	return c
}

// Whenever a client asks for the task and what follows, it ends up with the same;
// and with what the task is in the end.
func TestTheTaskAndWhatFollows(t *testing.T) {
	for _, sc := range scenarios.All() {
		log := sc.Log()
		want := from(t, log, 0, 0).String()
		for n := range log {
			c := from(t, log, n, n)
			if got := c.String(); got != want {
				t.Errorf("%s after %d events:\n got %s\nwant %s", sc.Name, n, got, want)
			}
			if c.tasks != 1 {
				t.Errorf("%s after %d events: the task was told %d times", sc.Name, n, c.tasks)
			}
		}
		if got := from(t, log, len(log), len(log)).String(); got != want {
			t.Errorf("%s as a task:\n got %s\nwant %s", sc.Name, got, want)
		}
	}
}

// The control: one event too many, or too few, is noticed.
func TestOneEventOffIsNoticed(t *testing.T) {
	sc, _ := scenarios.Named("text")
	log := sc.Log()
	want := from(t, log, 0, 0).String()
	for n, e := range log {
		if e.Type != event.TextDelta {
			continue
		}
		if from(t, log, n, n+1).String() == want {
			t.Errorf("event %d is missing, and nothing differs", n+1)
		}
		if from(t, log, n+1, n).String() == want {
			t.Errorf("event %d came twice, and nothing differs", n+1)
		}
	}
}

// A task that waits says what for, until it has what it asked for.
func TestWhatATaskWaitsFor(t *testing.T) {
	for name, want := range map[string][]string{
		"approval":    {"approval_request", "send", "pay", `answer approve, or deny`},
		"client-tool": {"tool_request", "pick_date", "When?", "answer with it"},
	} {
		sc, _ := scenarios.Named(name)
		log := sc.Log()
		parked := slices.IndexFunc(log, func(e event.Event) bool {
			return e.Type == event.RunStatus && strings.Contains(string(e.Data), "expires_at")
		})
		told, asked := from(t, log[:parked+1], 0, 0), from(t, log, parked+1, len(log))
		if told.state != a2a.InputRequired || told.String() != asked.String() {
			t.Errorf("%s: told %s, as a task %s", name, told, asked)
		}
		for _, w := range want {
			if !strings.Contains(told.message, w) {
				t.Errorf("%s: %q is missing in %s", name, w, told.message)
			}
		}
		fold := event.NewSession(scenarios.SessionID)
		for _, e := range log[:parked+1] {
			if err := fold.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		c := &client{}
		c.read(t, a2a.Dialect{Run: scenarios.RunID, Answered: fold.Seq}.Snapshot(dialect.Snapshot, fold, dialect.Client))
		if c.state != a2a.Working {
			t.Errorf("%s: the task was answered, and is %s", name, c.state)
		}
	}
}
