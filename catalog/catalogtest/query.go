package catalogtest

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/event"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// startRun applies a run of its own session: created at the given minute.
func startRun(t testing.TB, db *catalog.DB, tenant, run string, minute int, agent string, more ...func(*lines)) {
	t.Helper()
	l := &lines{session: "s-" + run, run: run, trace: "trace-" + agent}
	l.add(event.RunStarted, map[string]any{"agent": agent})
	for _, m := range more {
		m(l)
	}
	for i := range l.events {
		l.events[i].Time = event.At(noon.Add(time.Duration(minute) * time.Minute))
	}
	apply(t, db, tenant, l.events...)
}

func calls(tool string) func(*lines) {
	return func(l *lines) {
		l.add(event.ToolStarted, map[string]any{"call_id": "call_1", "name": tool, "executor": "worker"})
		l.add(event.ToolStarted, map[string]any{"call_id": "call_2", "name": tool, "executor": "worker"})
	}
}

func fails(l *lines) { l.add(event.RunFailed, map[string]any{"code": "internal"}) }

func ids(runs []catalog.Run) []string {
	list := []string{}
	for _, r := range runs {
		list = append(list, r.RunID)
	}
	return list
}

func testFilters(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	startRun(t, db, "acme", "r1", 1, "demo", calls("weather"))
	startRun(t, db, "acme", "r2", 2, "demo", calls("search"), fails)
	startRun(t, db, "acme", "r3", 3, "other", calls("weather"), fails)
	startRun(t, db, "acme", "r4", 4, "other")
	for _, c := range []struct {
		name   string
		filter catalog.Filter
		want   []string
	}{
		{"all", catalog.Filter{}, []string{"r4", "r3", "r2", "r1"}},
		{"trace", catalog.Filter{Trace: "trace-demo"}, []string{"r2", "r1"}},
		{"status", catalog.Filter{Status: event.Failed}, []string{"r3", "r2"}},
		{"agent", catalog.Filter{Agent: "other"}, []string{"r4", "r3"}},
		{"tool", catalog.Filter{Tool: "weather"}, []string{"r3", "r1"}},
		{"session", catalog.Filter{Session: "s-r2"}, []string{"r2"}},
		{"since", catalog.Filter{Since: noon.Add(3 * time.Minute)}, []string{"r4", "r3"}},
		{"until", catalog.Filter{Until: noon.Add(3 * time.Minute)}, []string{"r2", "r1"}},
		{"several", catalog.Filter{Tool: "weather", Status: event.Failed, Agent: "other", Trace: "trace-other"}, []string{"r3"}},
		{"nothing", catalog.Filter{Tool: "weather", Agent: "none"}, []string{}},
		{"quotes", catalog.Filter{Agent: "' or ''='"}, []string{}},
		{"nul", catalog.Filter{Agent: "\x00", Tool: "\xff", Trace: "\x00"}, []string{}},
	} {
		page := get(db.Runs(ctx, "acme", c.filter))(t)
		if got := ids(page.Runs); !slices.Equal(got, c.want) || page.Next != "" {
			t.Errorf("%s: got %v next %q, want %v", c.name, got, page.Next, c.want)
		}
	}
}

// manyRuns has runs that were created in the same minute, so that the id
// decides their order.
func manyRuns(t testing.TB, db *catalog.DB, n int) []string {
	t.Helper()
	want := make([]string, n)
	for i := range n {
		want[n-1-i] = fmt.Sprintf("r%03d", i)
		startRun(t, db, "acme", fmt.Sprintf("r%03d", i), i/10, "demo")
	}
	return want
}

func testPages(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	want := manyRuns(t, db, 57)
	for _, limit := range []int{1, 7, 10, 19, 56, 57, 58, 0, 1 << 40} {
		got := ids(allRuns(ctx, t, db, "acme", catalog.Filter{Limit: limit, Agent: "demo"}))
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: got %v, want %v", limit, got, want)
		}
	}
	if page := get(db.Runs(ctx, "acme", catalog.Filter{}))(t); len(page.Runs) != catalog.DefaultLimit || page.Next == "" {
		t.Errorf("first page has %d runs, next %q", len(page.Runs), page.Next)
	}
}

func testPagesUnderWrites(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	want := manyRuns(t, db, 30)
	var got []string
	f := catalog.Filter{Limit: 7}
	for turn := 0; ; turn++ {
		page := get(db.Runs(ctx, "acme", f))(t)
		got = append(got, ids(page.Runs)...)
		startRun(t, db, "acme", fmt.Sprintf("new%d", turn), 1000+turn, "demo")
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("while runs were added: got %v, want %v", got, want)
	}
}

func testBadCursors(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	startRun(t, db, "acme", "r1", 1, "demo")
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for _, bad := range []string{"x", "%%%", encode(`{}`), encode(`{"c":"x","r":"r"}`), encode(`[]`), encode("\x00"), encode(`{"c":1e99,"r":"r"}`)} {
		_, err := db.Runs(ctx, "acme", catalog.Filter{Cursor: bad})
		wantErr(t, err, catalog.ErrBadCursor)
	}
	if _, err := db.Runs(ctx, "acme", catalog.Filter{Cursor: encode(`{"c":1,"r":"\u0000","s":"\ud800"}`)}); err != nil {
		t.Errorf("a made-up cursor: %v", err)
	}
}

func testTraces(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	for i, run := range []string{"c", "a", "b"} {
		startRun(t, db, "acme", run, i, "demo")
	}
	startRun(t, db, "acme", "d", 5, "other")
	if got := ids(get(db.RunsOfTrace(ctx, "acme", "trace-demo"))(t)); !slices.Equal(got, []string{"c", "a", "b"}) {
		t.Errorf("runs of the trace: %v", got)
	}
	if got := get(db.RunsOfTrace(ctx, "acme", "none"))(t); len(got) != 0 {
		t.Errorf("runs of no trace: %v", got)
	}
}

func testTenants(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	artifact := func(l *lines) { l.add(event.ArtifactStarted, map[string]any{"artifact_id": "art", "name": "n"}) }
	startRun(t, db, "acme", "r", 1, "acme", calls("x"), artifact)
	for _, other := range []string{"beta", "", "acme'", "ACME", "%"} {
		_, err := db.Run(ctx, other, "r")
		wantErr(t, err, catalog.ErrNotFound)
		_, err = db.Session(ctx, other, "s-r")
		wantErr(t, err, catalog.ErrNotFound)
		_, err = db.Artifact(ctx, other, "art")
		wantErr(t, err, catalog.ErrNotFound)
		seen := len(get(db.ToolCalls(ctx, other, "r"))(t)) + len(get(db.Artifacts(ctx, other, "s-r"))(t)) +
			len(get(db.RunsOfTrace(ctx, other, "trace-acme"))(t)) + len(get(db.Runs(ctx, other, catalog.Filter{}))(t).Runs)
		if seen != 0 {
			t.Errorf("tenant %q sees %d rows of acme", other, seen)
		}
	}
	startRun(t, db, "beta", "r", 2, "beta") // the same ids
	for _, tenant := range []string{"acme", "beta"} {
		if r := get(db.Run(ctx, tenant, "r"))(t); r.Agent != tenant {
			t.Errorf("%s sees the run of %s", tenant, r.Agent)
		}
	}
	ownRows(ctx, t, db)
}

func ownRows(ctx context.Context, t *testing.T, db *catalog.DB) {
	t.Helper()
	if a := get(db.Artifact(ctx, "acme", "art"))(t); a.SessionID != "s-r" || a.Status != event.Writing {
		t.Errorf("artifact is %+v", a)
	}
	if c := get(db.ToolCalls(ctx, "acme", "r"))(t); len(c) != 2 || c[0].CallID != "call_1" {
		t.Errorf("calls are %+v", c)
	}
}
