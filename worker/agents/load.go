// Package agents reads agent files and puts the agents together: their model,
// their tools, their limits.
package agents

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"github.com/runlog-dev/runlog/worker/agent"
)

// Load reads every *.yaml and *.yml in the root of fsys, which is called dir in
// messages. Agents whose file is wrong are left out and reported, each with
// file, line and what is expected; the others load.
func Load(fsys fs.FS, dir string) ([]agent.Definition, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("agents in %s: %w", dir, err)
	}
	var list []agent.Definition
	var errs []error
	from, about := map[string]string{}, descriptions(fsys, entries)
	for _, e := range entries {
		if !isAgentFile(e) {
			continue
		}
		where := filepath.Join(dir, e.Name())
		d, err := loadFile(fsys, e.Name(), where, about)
		if err == nil && from[d.Name] != "" {
			err = fmt.Errorf("%s: agent %q is defined in %s already: give it another name", where, d.Name, from[d.Name])
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		from[d.Name] = where
		list = append(list, d)
	}
	return list, errors.Join(errs...)
}

func isAgentFile(e fs.DirEntry) bool {
	ext := path.Ext(e.Name())
	return !e.IsDir() && (ext == ".yaml" || ext == ".yml")
}

// descriptions has the names of the agents with what their files say of them.
// What is wrong with a file is told when it is loaded.
func descriptions(fsys fs.FS, entries []fs.DirEntry) map[string]string {
	about := map[string]string{}
	for _, e := range entries {
		var f struct{ Name, Description string }
		if !isAgentFile(e) {
			continue
		}
		if b, err := fs.ReadFile(fsys, e.Name()); err == nil && read(b, &f) == nil {
			about[f.Name] = f.Description
		}
	}
	return about
}

// loadFile reads one agent's file; where is its name in messages.
func loadFile(fsys fs.FS, name, where string, about map[string]string) (agent.Definition, error) {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return agent.Definition{}, fmt.Errorf("agent file %s: %w", where, err)
	}
	var f file
	if err := read(b, &f, yaml.Strict()); err != nil {
		return agent.Definition{}, fmt.Errorf("%s%s", where, placed(strings.TrimSpace(yaml.FormatError(err, false, true))))
	}
	doc, err := parser.ParseBytes(b, 0)
	if err != nil {
		return agent.Definition{}, fmt.Errorf("%s: %w", where, err)
	}
	c := &checker{fsys: fsys, path: where, doc: doc, about: about}
	d := c.definition(f)
	return d, errors.Join(c.errs...)
}

// read reads YAML. Its reader panics at some of what is none.
func read(b []byte, into any, opts ...yaml.DecodeOption) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("this is no YAML: %v", p)
		}
	}()
	return yaml.UnmarshalWithOptions(b, into, opts...)
}

// placed writes the parser's "[line:column] what" as ":line: what".
func placed(message string) string {
	place, what, ok := strings.Cut(message, "] ")
	line, _, two := strings.Cut(strings.TrimPrefix(place, "["), ":")
	if !ok || !two || !strings.HasPrefix(place, "[") {
		return ": " + message
	}
	return ":" + line + ": " + what + "\nwhat a file can hold: docs/agents.md"
}
