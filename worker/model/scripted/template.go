package scripted

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/runlog-dev/runlog/event"
)

// maxSaid bounds what one template may produce.
const maxSaid = 4 << 20

// A Text is a template that was checked when the script was read.
type Text struct{ t *template.Template }

func (t Text) empty() bool { return t.t == nil }

// UnmarshalYAML reads a string (numbers and words such as true are strings too).
func (t *Text) UnmarshalYAML(node ast.Node) error {
	text, ok := scalar(node)
	switch {
	case !ok:
		return wrongAt(node, "expected a text, this is a %s", strings.ToLower(node.Type().String()))
	case text == "":
		return nil
	}
	parsed, err := newTemplate(text)
	if err != nil {
		return templateError(node, err)
	}
	t.t = parsed
	return nil
}

// scalar is the text of a node that has no parts.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.NullNode:
		return "", true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case ast.ScalarNode:
		return fmt.Sprint(n.GetValue()), true
	}
	return "", false
}

func newTemplate(text string) (*template.Template, error) {
	return template.New("").Funcs(functions).Option("missingkey=zero").Parse(text)
}

// say fills the template in.
func (t Text) say(d *data) (string, error) {
	if t.empty() {
		return "", nil
	}
	w := &limited{}
	if err := t.t.Execute(w, d); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(w.String(), "�"), nil
}

type limited struct{ strings.Builder }

func (w *limited) Write(p []byte) (int, error) {
	if w.Len()+len(p) > maxSaid {
		return 0, fmt.Errorf("the text is over %d bytes", maxSaid)
	}
	return w.Builder.Write(p)
}

var functions = template.FuncMap{
	"cut":   cut,
	"json":  func(v any) string { return string(event.Encode(v)) },
	"upper": strings.ToUpper,
	"lower": strings.ToLower,
	"trim":  strings.TrimSpace,
	"lines": func(s string) []string { return strings.Split(strings.TrimRight(s, "\n"), "\n") },
	"seq":   seq,
}

func cut(n int, s string) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:max(n, 0)]) + "…"
}

func seq(from, to int) ([]int, error) {
	if to-from >= maxSaid {
		return nil, errors.New("seq: too many numbers")
	}
	var list []int
	for i := from; i <= to; i++ {
		list = append(list, i)
	}
	return list, nil
}

// Args are a call's arguments: a tree whose strings are templates, or one
// template of the JSON text.
type Args struct {
	whole Text
	tree  *tree
}

// UnmarshalYAML reads a mapping or a string.
func (a *Args) UnmarshalYAML(node ast.Node) error {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		t, err := newTree(node)
		a.tree = t
		return err
	case *ast.SequenceNode:
		return wrongAt(node, "arguments are a mapping, or a text that is one in JSON")
	}
	return a.whole.UnmarshalYAML(node)
}

// say returns the arguments as the model writes them: {} where there are none.
// What the template form comes to is passed on even if it is not JSON.
func (a Args) say(d *data) (string, error) {
	if a.tree != nil {
		b, err := a.tree.append(nil, d)
		return string(b), err
	}
	if a.whole.empty() {
		return "{}", nil
	}
	return a.whole.say(d)
}

// A tree is a YAML value whose strings are templates and whose keys keep their
// order.
type tree struct {
	text Text
	raw  json.RawMessage // any other scalar
	list []*tree
	keys []string
	kind ast.NodeType
}

func newTree(node ast.Node) (*tree, error) {
	t := &tree{kind: node.Type()}
	switch n := node.(type) {
	case *ast.MappingNode:
		return t, t.addAll(n.Values)
	case *ast.MappingValueNode:
		t.kind = ast.MappingType
		return t, t.addAll([]*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		for _, v := range n.Values {
			child, err := newTree(v)
			if err != nil {
				return nil, err
			}
			t.list = append(t.list, child)
		}
		return t, nil
	case *ast.StringNode, *ast.LiteralNode:
		t.kind = ast.StringType
		return t, t.text.UnmarshalYAML(node)
	}
	var v any
	if err := yaml.NodeToValue(node, &v); err != nil {
		return nil, err
	}
	t.raw = event.Encode(v)
	return t, nil
}

func (t *tree) addAll(values []*ast.MappingValueNode) error {
	for _, v := range values {
		child, err := newTree(v.Value)
		if err != nil {
			return err
		}
		key, ok := scalar(v.Key)
		if !ok {
			return wrongAt(v.Key, "expected a word as key")
		}
		t.keys = append(t.keys, key)
		t.list = append(t.list, child)
	}
	return nil
}

// append writes the tree as JSON.
func (t *tree) append(b []byte, d *data) ([]byte, error) {
	switch t.kind {
	case ast.MappingType, ast.SequenceType:
		return t.appendAll(b, d)
	case ast.StringType:
		s, err := t.text.say(d)
		return append(b, event.Encode(s)...), err
	}
	return append(b, t.raw...), nil
}

func (t *tree) appendAll(b []byte, d *data) (_ []byte, err error) {
	brackets := "[]"
	if t.kind == ast.MappingType {
		brackets = "{}"
	}
	b = append(b, brackets[0])
	for i, child := range t.list {
		if i > 0 {
			b = append(b, ',')
		}
		if t.kind == ast.MappingType {
			b = append(append(b, event.Encode(t.keys[i])...), ':')
		}
		if b, err = child.append(b, d); err != nil {
			return nil, err
		}
	}
	return append(b, brackets[1]), nil
}

// A Pattern is a regular expression; the zero value matches everything.
type Pattern struct{ re *regexp.Regexp }

// UnmarshalYAML reads a regular expression.
func (p *Pattern) UnmarshalYAML(node ast.Node) error {
	text, ok := scalar(node)
	if !ok {
		return wrongAt(node, "expected a regular expression")
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return wrongAt(node, "%v", err)
	}
	p.re = re
	return nil
}

func (p Pattern) match(s string) bool { return p.re == nil || p.re.MatchString(s) }

// A Wait is a time such as 300ms or 2s.
type Wait time.Duration

// UnmarshalYAML reads a time with its unit.
func (w *Wait) UnmarshalYAML(node ast.Node) error {
	text, _ := scalar(node)
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return wrongAt(node, "expected a time such as 300ms or 2s")
	}
	*w = Wait(d)
	return nil
}

func parse(text []byte) (*ast.File, error) { return parser.ParseBytes(text, 0) }

// place is where a node begins: the token of a mapping is its first colon.
func place(node ast.Node) (line, column int) {
	switch n := node.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 {
			return place(n.Values[0])
		}
	case *ast.MappingValueNode:
		return place(n.Key)
	}
	if t := node.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 0, 0
}

func wrongAt(node ast.Node, format string, args ...any) error {
	e := &Error{Message: fmt.Sprintf(format, args...)}
	e.Line, e.Column = place(node)
	return e
}

// inTemplate is how text/template begins its errors.
var inTemplate = regexp.MustCompile(`^template: :(\d+)(?::(\d+))?: `)

// templateError finds the line of the script for one of a template.
func templateError(node ast.Node, err error) error {
	e := &Error{Message: "template: " + inTemplate.ReplaceAllString(err.Error(), "")}
	e.Line, e.Column = place(node)
	if m := inTemplate.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		if _, block := node.(*ast.LiteralNode); !block {
			line-- // a block begins in the line after its |
		}
		e.Line += line
	}
	return e
}
