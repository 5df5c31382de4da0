package catalogtest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/event"
)

// A Dump is all that a catalog's queries give about some sessions, as JSON
// lines, in an order of their own.
type Dump []string

// DumpOf reads what db knows of a log's sessions and runs.
func DumpOf(t testing.TB, db *catalog.DB, log Log) Dump {
	t.Helper()
	ctx := within(t)
	var d Dump
	for session, tenant := range log.Sessions() {
		s, err := db.Session(ctx, tenant, session)
		must(t, err)
		artifacts, err := db.Artifacts(ctx, tenant, session)
		must(t, err)
		d.add(tenant, "session", s)
		d.add(tenant, "artifacts", artifacts)
	}
	for _, tenant := range Tenants {
		d = append(d, dumpRuns(ctx, t, db, tenant)...)
	}
	slices.Sort(d)
	return d
}

func dumpRuns(ctx context.Context, t testing.TB, db *catalog.DB, tenant string) Dump {
	t.Helper()
	var d Dump
	for _, r := range allRuns(ctx, t, db, tenant, catalog.Filter{}) {
		calls, err := db.ToolCalls(ctx, tenant, r.RunID)
		must(t, err)
		d.add(tenant, "run", r)
		d.add(tenant, "calls", calls)
	}
	return d
}

func (d *Dump) add(tenant, what string, v any) {
	*d = append(*d, tenant+" "+what+" "+string(event.Encode(v)))
}

// Equal fails the test with the first lines that differ.
func (d Dump) Equal(t testing.TB, want Dump) {
	t.Helper()
	if slices.Equal(d, want) {
		return
	}
	only := func(a, b Dump) string {
		lines := slices.DeleteFunc(slices.Clone(a), func(l string) bool { return slices.Contains(b, l) })
		return strings.Join(lines[:min(3, len(lines))], "\n")
	}
	t.Errorf("rows differ, got %d want %d; only in got:\n%s\nonly in want:\n%s", len(d), len(want), only(d, want), only(want, d))
}

// allRuns turns all pages.
func allRuns(ctx context.Context, t testing.TB, db *catalog.DB, tenant string, f catalog.Filter) []catalog.Run {
	t.Helper()
	var runs []catalog.Run
	for {
		page, err := db.Runs(ctx, tenant, f)
		must(t, err)
		runs = append(runs, page.Runs...)
		if page.Next == "" {
			return runs
		}
		f.Cursor = page.Next
	}
}

// Grouped makes the batch that ApplyAt takes of entries in log order.
func Grouped(entries []Entry) []catalog.Events {
	var batch []catalog.Events
	for _, e := range entries {
		i := slices.IndexFunc(batch, func(b catalog.Events) bool { return b.Tenant == e.Tenant })
		if i < 0 {
			i = len(batch)
			batch = append(batch, catalog.Events{Tenant: e.Tenant})
		}
		batch[i].Events = append(batch[i].Events, e.Event)
	}
	return batch
}
