package housetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")
	subName  = regexp.MustCompile("`P/([A-Z][A-Za-z0-9]*)`")
)

// TestDocsNameTestsThatExist: a promise whose test is gone is no promise.
func TestDocsNameTestsThatExist(t *testing.T) {
	root := "../.."
	var code strings.Builder
	for _, dir := range []string{"event", "eventlog", "worker", "edge", "recorder", "catalog", "artifacts", "audit", "clients", "cmd", "internal", "interop", "deploy", "migrations"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "test.go") {
				b, err := os.ReadFile(path)
				code.Write(b)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	named := 0
	for _, doc := range docs {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testName.FindAllStringSubmatch(string(b), -1) {
			named++
			if !strings.Contains(code.String(), "func "+m[1]+"(") {
				t.Errorf("%s names %s, which is not there", filepath.Base(doc), m[1])
			}
		}
		for _, m := range subName.FindAllStringSubmatch(string(b), -1) {
			named++
			if !strings.Contains(code.String(), `"`+m[1]+`"`) {
				t.Errorf("%s names P/%s, which is not there", filepath.Base(doc), m[1])
			}
		}
	}
	if named < 40 {
		t.Errorf("only %d tests are named: the patterns do not fit the documents", named)
	}
}
