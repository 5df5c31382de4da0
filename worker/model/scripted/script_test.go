package scripted

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrongScriptsSayWhere(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		want string // place and a word of the message
	}{
		"empty":                        {"", "nothing to play"},
		"unknown field":                {"steps:\n  - text: a\n    txet: b\n", "script:3:5: unknown field \"txet\""},
		"no yaml":                      {"steps: [\n", "script:1:8"},
		"silent step":                  {"steps:\n  - text: a\n  - delay: 1s\n", "script:3:5: the step says nothing"},
		"template":                     {"steps:\n  - text: \"{{.Input\"\n", "script:2:11: template: unclosed action"},
		"template in a block":          {"steps:\n  - text: |\n      one\n      {{nope}}\n", "script:4:11: template: function \"nope\" not defined"},
		"template in a stripped block": {"steps:\n  - delay: 1s\n    text: |-\n      one\n\n      {{nope}}\n    rate: 1\n", "script:6:11: template"},
		"template in args":             {"steps:\n  - calls:\n      - name: a\n        args: {x: [1, \"{{end}}\"]}\n", "script:4:23: template"},
		"regexp":                       {"branches:\n  - when: a(\n    steps: [{text: a}]\n", "script:2:11: error parsing regexp"},
		"branch":                       {"branches:\n  - when: a\n", "script:2:5: the branch has no steps"},
		"fail kind":                    {"steps:\n  - fail: {kind: explode}\n", "script:2:12: kind \"explode\" is none of"},
		"finish":                       {"steps:\n  - {text: a, finish: done}\n", "finish \"done\" is none of"},
		"nameless call":                {"steps:\n  - calls: [{args: {}}]\n", "the call has no name"},
		"list as args":                 {"steps:\n  - calls: [{name: a, args: [1]}]\n", "arguments are a mapping"},
		"mapping as text":              {"steps:\n  - text: {a: b}\n", "expected a text"},
		"duration":                     {"steps:\n  - {text: a, delay: soon}\n", "script:2:"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse([]byte(c.yaml))
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v; want %q", s, err, c.want)
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte("steps:\n  - txet: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), path+":2:5: ") {
		t.Errorf("error is %v", err)
	}
	if _, err := Load(path + ".no"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
	if _, err := Load("../../../examples/agents/demo.script"); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(demo(f))
	f.Add([]byte("branches:\n  ! w"))
	f.Add([]byte("steps: [{text: a, calls: [{name: b, args: {c: [1, {d: '{{.Input}}'}]}}]}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		d := &data{Input: "x", Step: 1}
		for _, steps := range append([]Branch{{Steps: s.Steps}}, s.Branches...) {
			for i := range steps.Steps {
				_, _ = steps.Steps[i].chunks(d) // must not panic
			}
		}
	})
}

// demo reads the demo agent's script.
func demo(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("../../../examples/agents/demo.script")
	if err != nil {
		t.Fatal(err)
	}
	return text
}
