package tool_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/worker/tool"
)

type named struct{ name, space string }

func (n named) Spec() tool.Spec   { return tool.Spec{Name: n.name} }
func (n named) Namespace() string { return n.space }
func (n named) Call(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{Structured: []byte(`"` + n.space + `"`)}, nil
}

// plain has no namespace, as a built-in.
type plain struct{ named }

func (plain) Namespace(int) {}

func TestDistinctNamesOnlyWhatClashes(t *testing.T) {
	long := strings.Repeat("x", 64)
	var got []string
	tools := tool.Distinct([]tool.Tool{
		named{"search", "files"}, named{"search", "web"}, named{"read", "files"}, plain{named{"write", ""}}, named{"write", "files"},
		named{"read_2", "my server"}, named{"read_2", "b"}, named{long, "a"}, named{long, "b"}, named{"dup", "a"}, named{"dup", "a"},
	})
	for _, tl := range tools {
		got = append(got, tl.Spec().Name)
	}
	want := []string{"files__search", "web__search", "read", "write", "files__write", "my_server__read_2", "b__read_2",
		"a__" + long[:61], "b__" + long[:61], "a__dup"}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	if res, _ := tools[1].Call(t.Context(), tool.Call{}); string(res.Structured) != `"web"` {
		t.Errorf("web__search is answered by %s", res.Structured)
	}
}

func TestCleanName(t *testing.T) {
	for name, want := range map[string]string{"a-B_9": "a-B_9", "a.b/c d": "a_b_c_d", "größe": "gr__e", strings.Repeat("é", 70): strings.Repeat("_", 64), "": ""} {
		if got := tool.CleanName(name); got != want {
			t.Errorf("CleanName(%q) = %q, want %q", name, got, want)
		}
	}
}
