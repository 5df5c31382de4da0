// Package catalogtest is the suite that every engine of the catalog passes, and
// random logs to fill a catalog with.
package catalogtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/event"
)

// Run holds an engine to what catalog.DB promises. open returns an empty
// catalog with the newest schema that ends with the test.
func Run(t *testing.T, open func(testing.TB) *catalog.DB) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, func(testing.TB) *catalog.DB)
	}{
		{"keys", testKeys},
		{"revoked keys let nobody in", testRevoked},
		{"keys of other tenants cannot be revoked", testForeignKey},
		{"projection equals the fold", testFold},
		{"golden log", testGolden},
		{"repeated batches change nothing", testRepeats},
		{"several at once change nothing", testConcurrent},
		{"older events change nothing", testOlder},
		{"no text stops it", testHostileText},
		{"broken data is passed over", testBrokenData},
		{"other types are ignored", testOtherTypes},
		{"position moves with the rows", testPosition},
		{"position moves once", testMovedOnce},
		{"reset drops all but keys", testReset},
		{"lead", testLead},
		{"filters", testFilters},
		{"pages", testPages},
		{"pages do not shift", testPagesUnderWrites},
		{"bad cursors", testBadCursors},
		{"traces span sessions", testTraces},
		{"tenant walls", testTenants},
		{"the caller's cancellation is its own", testCancelled},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// get returns what a call gave, or ends the test.
func get[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		must(t, err)
		return v
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

// apply projects events of one tenant.
func apply(t testing.TB, db *catalog.DB, tenant string, events ...event.Event) {
	t.Helper()
	must(t, db.Apply(within(t), tenant, events))
}

func testCancelled(t *testing.T, open func(testing.TB) *catalog.DB) {
	db := open(t)
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	_, err := db.Run(ctx, "t", "run_1")
	wantErr(t, err, context.Canceled)
	if errors.Is(err, catalog.ErrUnavailable) {
		t.Errorf("a cancelled caller hears %v", err)
	}
	wantErr(t, db.Apply(ctx, "t", NewLog(1, 1, 5).Events("s-1-0")), context.Canceled)
}
