package catalog_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/catalog/catalogtest"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// engines are the two, for tests that need a database of which nothing is open yet.
var engines = map[string]func(testing.TB) string{
	"sqlite":   sqliteURL,
	"postgres": func(t testing.TB) string { return testservers.Postgres(t) },
}

func TestOldSchemaSaysWhatToDo(t *testing.T) {
	for name, url := range engines {
		t.Run(name, func(t *testing.T) {
			where := url(t)
			_, err := catalog.Open(t.Context(), where, catalog.Options{})
			if !errors.Is(err, catalog.ErrOldSchema) || !strings.Contains(err.Error(), "run `runlog migrate`") {
				t.Errorf("opening an empty database: %v", err)
			}
			open(t, where)
			again, err := catalog.Open(t.Context(), where, catalog.Options{})
			if err != nil {
				t.Fatalf("after the migration: %v", err)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewerSchemaIsFine(t *testing.T) {
	url := testservers.Postgres(t)
	db := open(t, url)
	raw, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Exec("insert into runlog_schema (version_id, is_applied) values (9999, true)"); err != nil {
		t.Fatal(err)
	}
	again, err := catalog.Open(t.Context(), url, catalog.Options{})
	if err != nil {
		t.Fatalf("with a schema of tomorrow: %v", err)
	}
	defer again.Close()
	if _, err := db.AnyKeys(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOtherEncodingsAreRefused(t *testing.T) {
	url := testservers.Postgres(t)
	raw, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	const name = "test_of_latin1"
	if _, err := raw.Exec("create database " + name + " encoding 'LATIN1' template template0"); err != nil {
		t.Fatal(err)
	}
	defer raw.Exec("drop database " + name + " with (force)")
	i := strings.LastIndex(url, "/")
	_, query, _ := strings.Cut(url[i:], "?")
	_, err = catalog.Open(t.Context(), url[:i+1]+name+"?"+query, catalog.Options{Migrate: true})
	if err == nil || !strings.Contains(err.Error(), "UTF8") {
		t.Errorf("a database in LATIN1: %v", err)
	}
}

func TestMigrateTwiceDoesNothing(t *testing.T) {
	for name, url := range engines {
		t.Run(name, func(t *testing.T) {
			applied, err := open(t, url(t)).Migrate(t.Context())
			if err != nil || len(applied) != 0 {
				t.Errorf("second time: applied %v, %v", applied, err)
			}
		})
	}
}

// TestMigratingProcesses is several processes at once on one empty database.
func TestMigratingProcesses(t *testing.T) {
	if url := os.Getenv("CATALOG_TEST_MIGRATE"); url != "" {
		open(t, url)
		return
	}
	for name, url := range engines {
		t.Run(name, func(t *testing.T) { migrateAtOnce(t, url(t)) })
	}
}

func migrateAtOnce(t *testing.T, url string) {
	var processes []*exec.Cmd
	for range 6 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMigratingProcesses$", "-test.count=1")
		cmd.Env = append(os.Environ(), "CATALOG_TEST_MIGRATE="+url)
		out := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, cmd)
	}
	for _, cmd := range processes {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, cmd.Stdout)
		}
	}
	if _, err := open(t, url).AnyKeys(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestUnknownURLs(t *testing.T) {
	dir := t.TempDir()
	for _, url := range []string{"", "mysql://x", "sqlite:", "sqlite::memory:", "sqlite:" + dir,
		"sqlite:" + filepath.Join(dir, "missing", "c.db"), "postgres://u:hunter2@[::1", "catalog.db"} {
		db, err := catalog.Open(t.Context(), url, catalog.Options{Migrate: true})
		if err == nil {
			t.Errorf("%q was opened", url)
			db.Close()
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestNotADatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.db")
	if err := os.WriteFile(file, []byte(strings.Repeat("this is a diary\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	if db, err := catalog.Open(t.Context(), "sqlite:"+file, catalog.Options{Migrate: true}); err == nil {
		db.Close()
		t.Error("a diary was opened")
	}
}

func TestSQLiteFileIsPrivateAndKeepsItsContent(t *testing.T) {
	url := sqliteURL(t)
	db, err := catalog.Open(t.Context(), url, catalog.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	secret, _, err := db.CreateKey(t.Context(), "acme", "ci", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sqliteFiles(t, url) {
		if mode := file.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s has mode %o: others can read key hashes", file.Name(), mode)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, url).KeyByHash(t.Context(), catalog.HashKey(secret)); err != nil {
		t.Errorf("after reopening: %v", err)
	}
}

func sqliteFiles(t *testing.T, url string) []os.FileInfo {
	t.Helper()
	file := strings.TrimPrefix(url, "sqlite:")
	var infos []os.FileInfo
	for _, f := range []string{file, file + "-wal"} { // -shm is an index of pages, -migrate is empty
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	return infos
}

func TestPostgresDownAtStartAndBetween(t *testing.T) {
	server := testservers.StartPostgres(t)
	url := server.URL()
	open(t, url)
	server.Stop()

	db, err := catalog.Open(t.Context(), url, catalog.Options{})
	if err != nil {
		t.Fatalf("opening while the server is down: %v", err)
	}
	defer db.Close()
	everythingUnavailable(t, db)

	server.Start()
	log := catalogtest.NewLog(1, 2, 30)
	if err := db.ApplyAt(t.Context(), 0, 0, 1, catalogtest.Grouped(log.Entries)); err != nil {
		t.Fatalf("after the server came back: %v", err)
	}
	server.Stop()
	everythingUnavailable(t, db)
	server.Start()
	if at, err := db.Position(t.Context(), 0); err != nil || at != 1 {
		t.Errorf("after a restart of the server the position is %d, %v", at, err)
	}
}

func everythingUnavailable(t *testing.T, db *catalog.DB) {
	t.Helper()
	ctx, log := t.Context(), catalogtest.NewLog(1, 1, 5)
	_, _, createErr := db.CreateKey(ctx, "acme", "ci", nil)
	_, keyErr := db.KeyByHash(ctx, catalog.HashKey("x"))
	_, anyErr := db.AnyKeys(ctx)
	_, runErr := db.Run(ctx, "acme", "r")
	_, runsErr := db.Runs(ctx, "acme", catalog.Filter{})
	_, posErr := db.Position(ctx, 0)
	_, leadErr := db.Lead(ctx, 0, "me", time.Second)
	for what, err := range map[string]error{
		"create key": createErr, "key": keyErr, "any": anyErr, "run": runErr, "runs": runsErr, "position": posErr, "lead": leadErr,
		"apply": db.Apply(ctx, "acme", log.Events("s-1-0")), "apply at": db.ApplyAt(ctx, 0, 0, 5, nil), "reset": db.Reset(ctx),
	} {
		if !errors.Is(err, catalog.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
	}
}

func TestSilentPostgresIsGivenUp(t *testing.T) {
	url, proxy := behindProxy(t)
	db, err := catalog.Open(t.Context(), url, catalog.Options{Timeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.AnyKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Blackhole()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := db.AnyKeys(ctx); !errors.Is(err, catalog.ErrUnavailable) {
		t.Errorf("of a silent server: %v", err)
	}
	proxy.Heal()
	proxy.Cut()
	eventually(t, func() error { _, err := db.AnyKeys(t.Context()); return err })
}

// TestLostCommit is a commit that was done though nobody heard of it.
func TestLostCommit(t *testing.T) {
	url, proxy := behindProxy(t)
	db, err := catalog.Open(t.Context(), url, catalog.Options{Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	log := catalogtest.NewLog(5, 2, 60)
	half := len(log.Entries) / 2
	if err := db.ApplyAt(t.Context(), 0, 0, 1, catalogtest.Grouped(log.Entries[:half])); err != nil {
		t.Fatal(err)
	}
	proxy.CutAfter(1) // the server hears everything, and says no more than a byte
	if err := db.ApplyAt(t.Context(), 0, 1, 2, catalogtest.Grouped(log.Entries[half:])); !errors.Is(err, catalog.ErrUnavailable) {
		t.Fatalf("over a cut line: %v", err)
	}
	proxy.Heal()
	proxy.Cut()
	eventually(t, func() error {
		at, err := db.Position(t.Context(), 0)
		if err != nil || at == 2 {
			return err
		}
		return db.ApplyAt(t.Context(), 0, at, 2, catalogtest.Grouped(log.Entries[half:]))
	})
	want := open(t, sqliteURL(t))
	if err := want.ApplyAt(t.Context(), 0, 0, 1, catalogtest.Grouped(log.Entries)); err != nil {
		t.Fatal(err)
	}
	catalogtest.DumpOf(t, db, log).Equal(t, catalogtest.DumpOf(t, want, log))
}

// behindProxy returns the URL of a migrated database through a proxy.
func behindProxy(t *testing.T) (string, *testservers.Proxy) {
	t.Helper()
	direct := testservers.Postgres(t)
	open(t, direct)
	host := hostOf(t, direct)
	proxy := testservers.StartProxy(t, host)
	return strings.Replace(direct, host, proxy.Addr(), 1), proxy
}

func hostOf(t *testing.T, url string) string {
	t.Helper()
	_, rest, ok := strings.Cut(url, "@")
	host, _, also := strings.Cut(rest, "/")
	if !ok || !also {
		t.Fatalf("no host in %s", url)
	}
	return host
}

// eventually tries again until it works or the test has taken too long.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Processes that start at once on a new database wait for each other.
func TestManyProcessesOpenANewDatabaseAtOnce(t *testing.T) {
	for range 3 {
		url := sqliteURL(t)
		var all errgroup.Group
		for range 6 {
			all.Go(func() error {
				db, err := catalog.Open(t.Context(), url, catalog.Options{Migrate: true})
				if err != nil {
					return err
				}
				return db.Close()
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}
