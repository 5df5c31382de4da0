package main

import (
	"path/filepath"
	"testing"
)

// Keys are what an operator makes first: a SQLite catalog that nobody has opened
// before is migrated by this as by any other command.
func TestKeysOfANewSQLiteCatalog(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "deep", "catalog.db")
	for _, args := range [][]string{{"list"}, {"create", "--name", "ci"}, {"list"}} {
		if err := keysCommand(t.Context(), append(args, "--catalog", url)); err != nil {
			t.Errorf("keys %v: %v", args, err)
		}
	}
}
