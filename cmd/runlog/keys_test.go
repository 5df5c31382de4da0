package main

import (
	"errors"
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

// What is misspelt is refused, and not taken for something else.
func TestMisspeltCommandsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"dev", "--sync", "allways"}, {"keys", "revoke", "--catalog", "sqlite:" + filepath.Join(t.TempDir(), "c.db")}, {"egde"}} {
		if err := dispatch(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("runlog %v: %v", args, err)
		}
	}
}
