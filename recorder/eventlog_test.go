package recorder_test

import (
	"context"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/catalog/catalogtest"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
	"github.com/runlog-dev/runlog/recorder"
)

var _ recorder.Source = (*eventlog.Log)(nil)

// dial opens the log of a NATS server.
func dial(t testing.TB, url string, o eventlog.Options) *eventlog.Log {
	t.Helper()
	nc, err := eventlog.Connect(url, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log, err := eventlog.Open(ctx, nc, o)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// write appends entries as their workers would, one writer for each session,
// and returns when all are committed.
func write(t testing.TB, log *eventlog.Log, entries []catalogtest.Entry) {
	t.Helper()
	writers := map[eventlog.Key]*eventlog.Writer{}
	for _, e := range entries {
		key := eventlog.Key{Tenant: e.Tenant, Session: e.Event.SessionID}
		w := writers[key]
		if w == nil {
			head, err := log.Head(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			w = log.Writer(key, head)
			defer w.Close()
			writers[key] = w
		}
		if _, err := w.Append(e.Event); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range writers {
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecordsTheRealLog(t *testing.T) {
	server := testservers.NATS(t, 1)
	source, log := dial(t, server.URL(), eventlog.Options{Partitions: 2}), catalogtest.NewLog(21, 6, 150)
	db, _ := openSQLite(t)
	parts := slice(log, 3)
	stop := run(t, recorder.New(source, db, quick(t)))
	write(t, source, parts[0])
	awaitAll(t, source, db)

	write(t, source, parts[1])
	server.Kill() // while it is being recorded
	server.Start()
	await(t, func() bool { return source.Ping(t.Context()) == nil })
	write(t, source, parts[2])
	awaitAll(t, source, db)
	stop()
	want := wanted(t, log)
	catalogtest.DumpOf(t, db, log).Equal(t, want)

	if err := recorder.New(source, db, quick(t)).Reindex(t.Context()); err != nil {
		t.Fatal(err)
	}
	catalogtest.DumpOf(t, db, log).Equal(t, want)
}

// TestIDsOutsideSubjects: ids that a subject cannot hold come back as they were.
func TestIDsOutsideSubjects(t *testing.T) {
	server := testservers.NATS(t, 1)
	source := dial(t, server.URL(), eventlog.Options{})
	db, _ := openSQLite(t)
	var events []catalogtest.Entry
	for seq := range event.Seq(5) {
		events = append(events, catalogtest.Entry{Tenant: "a b/é", Event: started("s.*>", seq+1)})
	}
	write(t, source, events[:4])
	run(t, recorder.New(source, db, quick(t)))
	awaitAll(t, source, db)
	write(t, source, events[4:])
	awaitAll(t, source, db)
	if r, err := db.Run(t.Context(), "a b/é", "run-s.*>"); err != nil || r.Seq != 5 || r.SessionID != "s.*>" {
		t.Errorf("got %+v, %v", r, err)
	}
}
