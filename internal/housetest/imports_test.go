package housetest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/runlog-dev/runlog"

// A room is a directory with what lies below it, and what its packages may import of the rooms around it. They may
// always import each other.
type room struct {
	path    string
	may     []string // rooms; "*" for all that are no test servers
	onlyStd bool     // nothing from other modules
}

var stores = []string{"event", "eventlog", "artifacts", "catalog"}

// rooms says the direction of data: cmd -> edge, worker, recorder -> stores -> event. A package belongs to the room
// with the longest path that holds it.
var rooms = []room{
	{path: "event", onlyStd: true},
	{path: "eventlog", may: []string{"event"}},
	{path: "artifacts", may: []string{"event"}},
	{path: "catalog", may: []string{"event", "migrations"}},
	{path: "migrations"},
	{path: "recorder", may: stores},
	{path: "audit", may: []string{"event", "eventlog"}},
	{path: "worker", may: stores},
	{path: "edge", may: stores},
	{path: "edge/dialect", may: []string{"event"}, onlyStd: true},
	{path: "console"},
	{path: "clients", may: []string{"event"}},
	{path: "examples", may: []string{"event", "clients"}},
	{path: "examples/goagent", may: []string{"event", "eventlog", "artifacts", "worker"}},
	{path: "cmd", may: []string{"*"}},
	{path: "deploy"},
	{path: "interop", may: []string{"*"}},
	{path: "internal", may: []string{"*"}},
	{path: "internal/testservers"},
	{path: "internal/housetest"},
}

// goPackage is what go list tells of a package.
type goPackage struct {
	ImportPath, Dir, Doc               string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

func TestImportDirections(t *testing.T) {
	for _, p := range packages(t) {
		r := roomOf(t, p.ImportPath)
		for _, imported := range p.Imports {
			if complaint := r.refuses(t, p.ImportPath, imported); complaint != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, complaint)
			}
		}
	}
}

// A test may need more than the package it tests, but never reaches across: what edge and worker do together is
// tested from outside of both.
func TestEdgeAndWorkerAreTestedApart(t *testing.T) {
	apart := map[string]string{"edge": "worker", "worker": "edge"}
	for _, p := range packages(t) {
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			other, ok := apart[top(p.ImportPath)]
			if ok && inside(imported) && top(imported) == other {
				t.Errorf("a test of %s imports %s: test the two together in a package of their own", p.ImportPath, imported)
			}
		}
	}
}

// The rule would be worth little if it let everything pass.
func TestRulesRefuse(t *testing.T) {
	for _, c := range []struct{ from, to string }{
		{"edge/stream", module + "/worker"},
		{"worker/agent", module + "/edge/auth"},
		{"eventlog", module + "/catalog"},
		{"catalog", module + "/artifacts"},
		{"recorder", module + "/edge"},
		{"event", module + "/eventlog"},
		{"event", "github.com/nats-io/nats.go"},
		{"edge/dialect/agui", module + "/eventlog"},
		{"edge/dialect/agui", module + "/edge"},
		{"edge/dialect/agui", "github.com/openai/openai-go/v3"},
		{"worker/tool", module + "/internal/testservers"},
		{"cmd/runlog", module + "/internal/testservers"},
		{"artifacts", module + "/artifacts/artifactstest"},
		{"artifacts/artifactstest", module + "/catalog"},
	} {
		from := module + "/" + c.from
		if roomOf(t, from).refuses(t, from, c.to) == "" {
			t.Errorf("%s may import %s", c.from, c.to)
		}
	}
	for _, c := range []struct{ from, to string }{
		{"edge", module + "/edge/dialect/native"},
		{"edge/dialect/agui", module + "/event"},
		{"cmd/runlog", module + "/worker"},
		{"worker/agent", module + "/worker/model"},
		{"eventlog", "github.com/nats-io/nats.go/jetstream"},
		{"event", "encoding/json"},
		{"worker/model/modeltest/modelserver", module + "/worker/model/modeltest"},
		{"artifacts/artifactstest", module + "/internal/testservers"},
	} {
		from := module + "/" + c.from
		if complaint := roomOf(t, from).refuses(t, from, c.to); complaint != "" {
			t.Errorf("%s may not import %s: %s", c.from, c.to, complaint)
		}
	}
}

// refuses says what is wrong with an import by a package of this room, or "".
func (r room) refuses(t *testing.T, importer, imported string) string {
	if !inside(imported) {
		if r.onlyStd && strings.Contains(first(imported), ".") {
			return "a package of " + r.path + " imports the standard library only"
		}
		return ""
	}
	to := roomOf(t, imported)
	switch {
	case forTests(imported) && !forTests(importer):
		return "it is there for tests"
	case forTests(imported):
		return ""
	case to.path == r.path || slices.Contains(r.may, to.path) || slices.Contains(r.may, "*"):
		return ""
	case strings.HasPrefix(to.path, r.path+"/"):
		return ""
	}
	return "a package of " + r.path + " imports of this module only " + strings.Join(append([]string{r.path}, r.may...), ", ")
}

// forTests tells a package that only tests import, such as a suite for several implementations, by its path.
func forTests(importPath string) bool {
	return slices.ContainsFunc(strings.Split(importPath, "/"), func(elem string) bool {
		return strings.HasSuffix(elem, "test") || elem == "testservers"
	})
}

func roomOf(t *testing.T, importPath string) room {
	t.Helper()
	path := strings.TrimPrefix(importPath, module+"/")
	best := room{}
	for _, r := range rooms {
		if (path == r.path || strings.HasPrefix(path, r.path+"/")) && len(r.path) > len(best.path) {
			best = r
		}
	}
	if best.path == "" {
		t.Fatalf("%s is in no known room: say in imports_test.go what it may import", importPath)
	}
	return best
}

func inside(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

func top(importPath string) string {
	return first(strings.TrimPrefix(importPath, module+"/"))
}

func first(path string) string {
	elem, _, _ := strings.Cut(path, "/")
	return elem
}

// packages returns all packages of the module, except its root, which holds no code.
func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Doc,GoFiles,Imports,TestImports,XTestImports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if p.ImportPath != module {
			all = append(all, p)
		}
	}
	if len(all) < 2 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}
