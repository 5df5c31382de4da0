package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Patch applies a JSON Patch (RFC 6902) to a document; an absent document is
// null. Numbers keep their digits. On any error the document is unchanged; what
// would nest it deeper than MaxDepth is one, and so is a patch that copies, moves
// and compares more than maxWork in all.
func Patch(doc, patch json.RawMessage) (json.RawMessage, error) {
	var root any
	if len(doc) > 0 {
		if err := decodeNumbers(doc, &root); err != nil {
			return nil, fmt.Errorf("patch: document: %w", err)
		}
	}
	var ops []patchOp
	if err := json.Unmarshal(patch, &ops); err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	p := patching{maxWork}
	for i, op := range ops {
		next, err := p.apply(root, op)
		if err != nil {
			return nil, fmt.Errorf("patch: operation %d (%s %s): %w", i, cutText(op.Op, 20), cutText(op.Path, 100), err)
		}
		root = next
	}
	return Encode(root), nil
}

type patchOp struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from"`
	Value json.RawMessage `json:"value"`
}

// maxWork is in bytes of JSON, about: a few operations that copy what others have
// copied would fill any memory.
const maxWork = 16 * MaxEncoded

// A patching counts down the work that is left.
type patching struct{ work int }

// spend takes from the work what a value holds, and refuses one that nests deeper
// than there is room.
func (p *patching) spend(value any, room int) error {
	p.work--
	var members []any
	switch v := value.(type) {
	case string:
		p.work -= len(v)
		return p.enough()
	case json.Number:
		p.work -= len(v)
		return p.enough()
	case map[string]any:
		for name, member := range v {
			p.work -= len(name)
			members = append(members, member)
		}
	case []any:
		members = v
	default:
		return p.enough()
	}
	if room <= 0 {
		return errDeep
	}
	for _, m := range members {
		if err := p.spend(m, room-1); err != nil {
			return err
		}
	}
	return p.enough()
}

func (p *patching) enough() error {
	if p.work < 0 {
		return fmt.Errorf("the patch copies, moves and compares more than %d KiB in all", maxWork>>10)
	}
	return nil
}

// clone is a value that later operations change apart from the one it is of.
func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for name, member := range v {
			c[name] = clone(member)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, elem := range v {
			c[i] = clone(elem)
		}
		return c
	}
	return value
}

func (p *patching) apply(root any, op patchOp) (any, error) {
	switch op.Op {
	case "add", "replace", "test":
		var value any
		if err := decodeNumbers(op.Value, &value); err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		return p.put(root, op, value)
	case "remove":
		_, root, err := remove(root, op.Path)
		return root, err
	case "move":
		value, rest, err := remove(root, op.From)
		if err != nil {
			return nil, err
		}
		return p.add(rest, op.Path, value)
	case "copy":
		value, err := lookup(root, op.From)
		if err != nil {
			return nil, err
		}
		if err := p.spend(value, MaxDepth); err != nil { // before it takes memory
			return nil, err
		}
		return p.add(root, op.Path, clone(value))
	}
	return nil, fmt.Errorf("unknown operation")
}

func (p *patching) add(root any, path string, value any) (any, error) {
	if err := p.spend(value, MaxDepth-strings.Count(path, "/")); err != nil {
		return nil, err
	}
	return edit(root, path, add(value))
}

func (p *patching) put(root any, op patchOp, value any) (any, error) {
	if op.Op == "add" {
		return p.add(root, op.Path, value)
	}
	old, err := lookup(root, op.Path)
	if err != nil {
		return nil, err
	}
	if op.Op == "replace" {
		if err := p.spend(value, MaxDepth-strings.Count(op.Path, "/")); err != nil {
			return nil, err
		}
		return edit(root, op.Path, replace(value))
	}
	if err := errors.Join(p.spend(old, maxNesting), p.spend(value, maxNesting)); err != nil {
		return nil, err
	}
	if !bytes.Equal(Encode(old), Encode(value)) {
		return nil, fmt.Errorf("test does not hold")
	}
	return root, nil
}

func decodeNumbers(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return dec.Decode(v)
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// split cuts a JSON Pointer into its first token and the rest.
func split(path string) (token, rest string, err error) {
	if !strings.HasPrefix(path, "/") {
		return "", "", fmt.Errorf("pointer %q does not begin with /", path)
	}
	token, rest, more := strings.Cut(path[1:], "/")
	if more {
		rest = "/" + rest
	}
	return unescape.Replace(token), rest, nil
}

func lookup(node any, path string) (any, error) {
	for path != "" {
		token, rest, err := split(path)
		if err != nil {
			return nil, err
		}
		switch n := node.(type) {
		case map[string]any:
			child, ok := n[token]
			if !ok {
				return nil, fmt.Errorf("no member %q", token)
			}
			node = child
		case []any:
			i, err := position(token, len(n)-1)
			if err != nil {
				return nil, err
			}
			node = n[i]
		default:
			return nil, fmt.Errorf("%q is not inside an object or array", token)
		}
		path = rest
	}
	return node, nil
}

func position(token string, last int) (int, error) {
	i, err := strconv.Atoi(token)
	if err != nil || i < 0 || i > last || (len(token) > 1 && token[0] == '0') {
		return 0, fmt.Errorf("no element %q", token)
	}
	return i, nil
}

// An edition changes the member or element named token of a container.
type edition struct {
	root   func() any
	member func(map[string]any, string)
	elem   func([]any, string) ([]any, error)
}

func add(value any) edition {
	return edition{
		root:   func() any { return value },
		member: func(m map[string]any, k string) { m[k] = value },
		elem: func(a []any, token string) ([]any, error) {
			if token == "-" {
				return append(a, value), nil
			}
			i, err := position(token, len(a))
			if err != nil {
				return nil, err
			}
			return slices.Insert(a, i, value), nil
		},
	}
}

func replace(value any) edition {
	e := add(value)
	e.elem = func(a []any, token string) ([]any, error) {
		i, err := position(token, len(a)-1)
		if err != nil {
			return nil, err
		}
		a[i] = value
		return a, nil
	}
	return e
}

func remove(root any, path string) (value, rest any, err error) {
	value, err = lookup(root, path)
	if err != nil {
		return nil, nil, err
	}
	rest, err = edit(root, path, edition{
		root:   func() any { return nil },
		member: func(m map[string]any, k string) { delete(m, k) },
		elem: func(a []any, token string) ([]any, error) {
			i, err := position(token, len(a)-1)
			if err != nil {
				return nil, err
			}
			return slices.Delete(a, i, i+1), nil
		},
	})
	return value, rest, err
}

// edit returns node with the edition made at path.
func edit(node any, path string, e edition) (any, error) {
	if path == "" {
		return e.root(), nil
	}
	token, rest, err := split(path)
	if err != nil {
		return nil, err
	}
	switch n := node.(type) {
	case map[string]any:
		if rest == "" {
			e.member(n, token)
			return n, nil
		}
		child, ok := n[token]
		if !ok {
			return nil, fmt.Errorf("no member %q", token)
		}
		n[token], err = edit(child, rest, e)
		return n, err
	case []any:
		if rest == "" {
			return e.elem(n, token)
		}
		i, err := position(token, len(n)-1)
		if err != nil {
			return nil, err
		}
		n[i], err = edit(n[i], rest, e)
		return n, err
	}
	return nil, fmt.Errorf("%q is not inside an object or array", token)
}
