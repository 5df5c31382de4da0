package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Patch applies a JSON Patch (RFC 6902) to a document; an absent document is
// null. Numbers keep their digits. On any error the document is unchanged.
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
	for i, op := range ops {
		next, err := op.apply(root)
		if err != nil {
			return nil, fmt.Errorf("patch: operation %d (%s %s): %w", i, op.Op, op.Path, err)
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

func (op patchOp) apply(root any) (any, error) {
	switch op.Op {
	case "add", "replace", "test":
		var value any
		if err := decodeNumbers(op.Value, &value); err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		return op.put(root, value)
	case "remove":
		_, root, err := remove(root, op.Path)
		return root, err
	case "move":
		value, rest, err := remove(root, op.From)
		if err != nil {
			return nil, err
		}
		return edit(rest, op.Path, add(value))
	case "copy":
		value, err := lookup(root, op.From)
		if err != nil {
			return nil, err
		}
		return edit(root, op.Path, add(value))
	}
	return nil, fmt.Errorf("unknown operation")
}

func (op patchOp) put(root, value any) (any, error) {
	if op.Op == "add" {
		return edit(root, op.Path, add(value))
	}
	old, err := lookup(root, op.Path)
	if err != nil {
		return nil, err
	}
	if op.Op == "replace" {
		return edit(root, op.Path, replace(value))
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
