package recorder_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/catalog/catalogtest"
	"github.com/runlog-dev/runlog/internal/testservers"
	"github.com/runlog-dev/runlog/recorder"
)

// quick makes waits short, so that tests need not.
func quick(t testing.TB) recorder.Options {
	return recorder.Options{Batch: 40, Wait: 5 * time.Millisecond, Lease: 300 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func openSQLite(t testing.TB) (*catalog.DB, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "catalog.db")
	return open(t, "sqlite:"+file), file
}

func open(t testing.TB, url string) *catalog.DB {
	t.Helper()
	db, err := catalog.Open(t.Context(), url, catalog.Options{Migrate: true, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// run starts a recorder and returns what stops it and waits for its end.
func run(t testing.TB, r *recorder.Recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// wanted is what the log has to look like in any catalog.
func wanted(t testing.TB, log catalogtest.Log) catalogtest.Dump {
	t.Helper()
	db, _ := openSQLite(t)
	if err := db.ApplyAt(t.Context(), 0, 0, 1, catalogtest.Grouped(log.Entries)); err != nil {
		t.Fatal(err)
	}
	return catalogtest.DumpOf(t, db, log)
}

// awaitAll waits until every partition is recorded to its end.
func awaitAll(t testing.TB, source recorder.Source, db *catalog.DB) {
	t.Helper()
	for p := range source.Partitions() {
		end, err := source.End(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		await(t, func() bool {
			at, err := db.Position(t.Context(), p)
			return err == nil && at >= end
		})
	}
}

// await polls, since what it waits for is in a database.
func await(t testing.TB, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !reached(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited 30 s in vain")
		}
	}
}

func TestRecordsWhatIsThereAndWhatComes(t *testing.T) {
	source, log := newMemory(3), catalogtest.NewLog(1, 7, 120)
	db, _ := openSQLite(t)
	parts := slice(log, 3)
	source.add(parts[0])
	run(t, recorder.New(source, db, quick(t)))
	for _, part := range parts[1:] {
		awaitAll(t, source, db)
		source.add(part)
	}
	awaitAll(t, source, db)
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
}

func TestGoesOnAfterRestarts(t *testing.T) {
	source, log := newMemory(2), catalogtest.NewLog(2, 5, 150)
	db, _ := openSQLite(t)
	for _, part := range slice(log, 6) {
		seen := make(chan struct{}, 1000)
		o := quick(t)
		o.Batch = 10
		o.Observe.Recorded = func(int, int, uint64, time.Duration) { seen <- struct{}{} }
		stop := run(t, recorder.New(source, db, o))
		source.add(part)
		<-seen // in the middle of the part
		stop()
	}
	run(t, recorder.New(source, db, quick(t)))
	awaitAll(t, source, db)
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
}

func TestLogThatBreaksOff(t *testing.T) {
	source, log := newMemory(2), catalogtest.NewLog(3, 4, 100)
	source.breaks = 5
	db, _ := openSQLite(t)
	source.add(log.Entries)
	run(t, recorder.New(source, db, quick(t)))
	awaitAll(t, source, db)
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
}

func TestOneReadsForAll(t *testing.T) {
	source, log := newMemory(1), catalogtest.NewLog(4, 4, 100)
	db, _ := openSQLite(t)
	parts := slice(log, 2)
	source.add(parts[0])
	o := quick(t)
	o.Lease = time.Hour
	leader := run(t, recorder.New(source, db, o))
	awaitAll(t, source, db)
	for range 3 {
		run(t, recorder.New(source, db, o))
	}
	source.add(parts[1])
	awaitAll(t, source, db)
	if source.reads != 1 {
		t.Errorf("the log was read %d times, want once", source.reads)
	}
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
	leader()
}

func TestTakesOverFromOneThatStopped(t *testing.T) {
	source, log := newMemory(1), catalogtest.NewLog(5, 4, 100)
	db, _ := openSQLite(t)
	parts := slice(log, 2)
	o := quick(t)
	o.Lease = time.Hour // it is not by running out that the lease ends
	first := run(t, recorder.New(source, db, o))
	source.add(parts[0])
	awaitAll(t, source, db)
	run(t, recorder.New(source, db, quick(t)))
	first()
	source.add(parts[1])
	awaitAll(t, source, db)
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
}

func TestTakesOverFromOneThatDied(t *testing.T) {
	source, log := newMemory(1), catalogtest.NewLog(6, 2, 50)
	db, _ := openSQLite(t)
	if led, err := db.Lead(t.Context(), 0, "dead", 400*time.Millisecond); err != nil || !led {
		t.Fatal(led, err)
	}
	source.add(log.Entries)
	run(t, recorder.New(source, db, quick(t)))
	awaitAll(t, source, db)
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
}

// TestSeveralAtOnceAreHarmless has recorders that all believe to lead.
func TestSeveralAtOnceAreHarmless(t *testing.T) {
	source, log := newMemory(2), catalogtest.NewLog(7, 4, 60)
	db, _ := openSQLite(t)
	var mu sync.Mutex
	moves := map[int][]uint64{}
	for range 4 {
		o := quick(t)
		o.Name, o.Batch = "the same", 7
		o.Observe.Recorded = func(p, _ int, at uint64, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			moves[p] = append(moves[p], at)
		}
		run(t, recorder.New(source, db, o))
	}
	for _, part := range slice(log, 5) {
		source.add(part)
		awaitAll(t, source, db)
	}
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
	mu.Lock()
	defer mu.Unlock()
	for p, positions := range moves {
		seen := map[uint64]bool{}
		for _, at := range positions {
			if seen[at] {
				t.Errorf("partition %d was moved to %d twice", p, at)
			}
			seen[at] = true
		}
	}
}

func TestReindexEqualsWhatItDropped(t *testing.T) {
	for _, live := range []bool{false, true} {
		source, log := newMemory(2), catalogtest.NewLog(8, 4, 50)
		db, _ := openSQLite(t)
		secret, _, err := db.CreateKey(t.Context(), "acme", "ci", nil)
		if err != nil {
			t.Fatal(err)
		}
		source.add(log.Entries)
		stop := run(t, recorder.New(source, db, quick(t)))
		awaitAll(t, source, db)
		before := catalogtest.DumpOf(t, db, log)
		if !live {
			stop()
		}
		if err := recorder.New(source, db, quick(t)).Reindex(t.Context()); err != nil {
			t.Fatal(err)
		}
		catalogtest.DumpOf(t, db, log).Equal(t, before)
		if _, err := db.KeyByHash(t.Context(), catalog.HashKey(secret)); err != nil {
			t.Errorf("the key did not survive: %v", err)
		}
		stop()
	}
}

// TestDroppedProjectionIsRebuilt is a reindex that died after the drop, with a
// recorder at work to which nothing new comes.
func TestDroppedProjectionIsRebuilt(t *testing.T) {
	source, log := newMemory(1), catalogtest.NewLog(9, 3, 60)
	db, _ := openSQLite(t)
	source.add(log.Entries)
	run(t, recorder.New(source, db, quick(t)))
	awaitAll(t, source, db)
	if err := db.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitAll(t, source, db)
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
}

func TestReindexEndsWithItsContext(t *testing.T) {
	source := newMemory(1)
	db, _ := openSQLite(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := recorder.New(source, db, quick(t)).Reindex(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Reindex after its context ended: %v", err)
	}
}

func TestUnreadableFramesArePassedOver(t *testing.T) {
	source, log := newMemory(1), catalogtest.NewLog(10, 3, 60)
	db, _ := openSQLite(t)
	for i, part := range slice(log, 3) {
		source.add(part)
		source.addLine("acme", "junk", []string{`{"v":1`, "\x00\xff", `{"v":7,"seq":1,"type":"run.started","session_id":"junk","data":{}}`}[i])
		source.add([]catalogtest.Entry{{Tenant: "acme", Event: started("lost"+string(rune('0'+i)), 1)}})
		source.broken[source.end(0)] = true
	}
	var passed counter
	o := quick(t)
	o.Observe.Passed = func(int) { passed.add() }
	run(t, recorder.New(source, db, o))
	awaitAll(t, source, db)
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
	if n := passed.value(); n < 6 {
		t.Errorf("%d were reported, want 6", n)
	}
}

func TestRefusedEventsArePassedOver(t *testing.T) {
	source := newMemory(1)
	db, file := openSQLite(t)
	raw, err := sql.Open("sqlite3", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Exec(`create trigger refuse before insert on runs when new.run_id like '%bad%'
		begin select raise(abort, 'no such run here'); end`); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"good1", "bad1", "good2", "bad2", "good3"} {
		source.add([]catalogtest.Entry{{Tenant: "acme", Event: started(s, 1)}})
	}
	var passed counter
	o := quick(t)
	o.Observe.Passed = func(int) { passed.add() }
	run(t, recorder.New(source, db, o))
	awaitAll(t, source, db)
	page, err := db.Runs(t.Context(), "acme", catalog.Filter{})
	if err != nil || len(page.Runs) != 3 || passed.value() != 2 {
		t.Errorf("got %+v, %v; %d passed over, want 3 runs and 2 passed over", page.Runs, err, passed.value())
	}
}

func TestReplacedLogIsNamed(t *testing.T) {
	source, log := newMemory(1), catalogtest.NewLog(11, 2, 40)
	db, _ := openSQLite(t)
	if err := db.ApplyAt(t.Context(), 0, 0, 1_000_000, nil); err != nil {
		t.Fatal(err)
	}
	source.add(log.Entries)
	failed := make(chan error, 100)
	o := quick(t)
	o.Observe.Failed = func(_ int, err error) { failed <- err }
	run(t, recorder.New(source, db, o))
	if err := <-failed; !strings.Contains(err.Error(), "run `runlog restored`") {
		t.Errorf("a log that ends before the position gives %v", err)
	}
	if err := recorder.New(source, db, quick(t)).Reindex(t.Context()); err != nil {
		t.Fatal(err)
	}
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
}

func TestLagIsTold(t *testing.T) {
	source, log := newMemory(1), catalogtest.NewLog(12, 2, 40)
	db, _ := openSQLite(t)
	lags := make(chan uint64, 1000)
	o := quick(t)
	o.Observe.Lag = func(_ int, frames uint64) { lags <- frames }
	run(t, recorder.New(source, db, o))
	source.add(log.Entries)
	awaitAll(t, source, db)
	await(t, func() bool { return <-lags == 0 })
}

func TestCatalogAway(t *testing.T) {
	server := testservers.StartPostgres(t)
	url := server.URL()
	db := open(t, url)
	source, log := newMemory(2), catalogtest.NewLog(13, 6, 100)
	parts := slice(log, 3)
	failed := make(chan error, 1000)
	var lag counter
	o := quick(t)
	o.Observe.Failed = func(_ int, err error) { failed <- err }
	o.Observe.Lag = func(_ int, frames uint64) { lag.max(int(frames)) }
	run(t, recorder.New(source, db, o))
	source.add(parts[0])
	awaitAll(t, source, db)

	server.Stop()
	source.add(parts[1]) // the log does not wait
	for range 4 {
		if err := <-failed; !errors.Is(err, catalog.ErrUnavailable) {
			t.Errorf("while the catalog is away: %v", err)
		}
	}
	await(t, func() bool { return lag.value() > 0 })
	source.add(parts[2])
	server.Start()
	awaitAll(t, source, db)
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
}

func TestCatalogAwayAtStart(t *testing.T) {
	server := testservers.StartPostgres(t)
	url := server.URL()
	open(t, url)
	server.Stop()
	db, err := catalog.Open(t.Context(), url, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	source, log := newMemory(1), catalogtest.NewLog(14, 2, 50)
	source.add(log.Entries)
	failed := make(chan error, 1000)
	o := quick(t)
	o.Observe.Failed = func(_ int, err error) { failed <- err }
	stop := run(t, recorder.New(source, db, o))
	<-failed
	server.Start()
	awaitAll(t, source, db)
	catalogtest.DumpOf(t, db, log).Equal(t, wanted(t, log))
	stop()
}

// counter is safe for concurrent use.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counter) max(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = max(c.n, n)
}

func (c *counter) value() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
