package catalog_test

import (
	"path/filepath"
	"testing"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/catalog/catalogtest"
	"github.com/runlog-dev/runlog/internal/testservers"
)

func TestSQLite(t *testing.T) {
	catalogtest.Run(t, func(t testing.TB) *catalog.DB { return open(t, sqliteURL(t)) })
}

func TestPostgres(t *testing.T) {
	catalogtest.Run(t, func(t testing.TB) *catalog.DB { return open(t, testservers.Postgres(t)) })
}

func TestEnginesAgree(t *testing.T) {
	lite, big := open(t, sqliteURL(t)), open(t, testservers.Postgres(t))
	log := catalogtest.NewLog(99, 8, 200)
	for _, db := range []*catalog.DB{lite, big} {
		if err := db.ApplyAt(t.Context(), 0, 0, 1, catalogtest.Grouped(log.Entries)); err != nil {
			t.Fatal(err)
		}
	}
	catalogtest.DumpOf(t, lite, log).Equal(t, catalogtest.DumpOf(t, big, log))
}

func sqliteURL(t testing.TB) string {
	return "sqlite:" + filepath.Join(t.TempDir(), "the catalog?#%41.db")
}

// open returns a migrated catalog that ends with the test.
func open(t testing.TB, url string) *catalog.DB {
	t.Helper()
	db, err := catalog.Open(t.Context(), url, catalog.Options{Migrate: true})
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
