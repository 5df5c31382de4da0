package tool

import "strings"

// MaxName is how long the name of a tool may be for every model provider.
const MaxName = 64

// CleanName makes a name that every model provider takes: letters, digits, _
// and -, at most MaxName of them.
func CleanName(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	return clean[:min(len(clean), MaxName)]
}

// A Namespaced tool comes from a source that has a name.
type Namespaced interface {
	Tool
	Namespace() string
}

// Distinct makes the names of tools from several sources differ, for one model
// request. Tools that share a name get their namespace before it, as in
// files__search; one without a namespace, such as a built-in, keeps its name.
// What still clashes then is left out but for the first.
func Distinct(tools []Tool) []Tool {
	count := map[string]int{}
	for _, t := range tools {
		count[t.Spec().Name]++
	}
	seen := map[string]bool{}
	var out []Tool
	for _, t := range tools {
		if n, ok := t.(Namespaced); ok && count[t.Spec().Name] > 1 {
			t = renamed{Tool: t, name: CleanName(n.Namespace() + "__" + t.Spec().Name)}
		}
		if name := t.Spec().Name; !seen[name] {
			seen[name] = true
			out = append(out, t)
		}
	}
	return out
}

// renamed is a tool under another name.
type renamed struct {
	Tool
	name string
}

func (r renamed) Spec() Spec {
	spec := r.Tool.Spec()
	spec.Name = r.name
	return spec
}
