package builtin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
	"github.com/runlog-dev/runlog/worker/tool/builtin"
)

func find(t *testing.T, name string) tool.Tool {
	t.Helper()
	tools, err := builtin.Source(name).Tools(t.Context())
	if err != nil || len(tools) != 1 {
		t.Fatalf("source of %s: %v, %v", name, tools, err)
	}
	return tools[0]
}

func textOf(res tool.Result) string {
	var out []string
	for _, p := range res.Content {
		out = append(out, p.Text)
	}
	return strings.Join(out, "\n")
}

// A file is one artifact in memory.
type file struct {
	bytes.Buffer
	part    event.Part
	writes  int
	aborted bool
	onWrite func() error
}

func (f *file) Write(p []byte) (int, error) {
	f.writes++
	if f.onWrite != nil {
		if err := f.onWrite(); err != nil {
			return 0, err
		}
	}
	return f.Buffer.Write(p)
}

func (f *file) Commit(context.Context) (event.Part, error) {
	f.part.Bytes = int64(f.Len())
	return f.part, nil
}

func (f *file) Abort() { f.aborted = true }

func (f *file) create(_ context.Context, name, mediaType string) (tool.ArtifactWriter, error) {
	f.part = event.Part{Type: event.PartFile, ArtifactID: "art_1", Name: name, MediaType: mediaType}
	return f, nil
}

func (f *file) open(_ context.Context, id string) (io.ReadSeekCloser, event.Part, error) {
	if id != "art_1" {
		return nil, event.Part{}, artifacts.ErrNotFound
	}
	part, _ := f.Commit(context.Background())
	return struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(f.Bytes()), io.NopCloser(nil)}, part, nil
}

func TestSourcesHaveValidSchemasAndKnowTheirNames(t *testing.T) {
	tools, err := builtin.Source().Tools(t.Context())
	if err != nil || len(tools) != len(builtin.Names()) {
		t.Fatalf("all tools: %v, %v", tools, err)
	}
	for i, tl := range tools {
		spec := tl.Spec()
		if spec.Name != builtin.Names()[i] || !json.Valid(spec.Parameters) || spec.OnCrash != tool.Retry {
			t.Errorf("spec %+v", spec)
		}
	}
	if _, err := builtin.Source("rm").Tools(t.Context()); err == nil || !strings.Contains(err.Error(), "write_artifact") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestWriteArtifactWritesInPieces(t *testing.T) {
	content := strings.Repeat("größer 漢字 🙂\n", 10_000)
	args, _ := json.Marshal(map[string]string{"name": "報告.md", "content": content})
	var f file
	res, err := find(t, "write_artifact").Call(t.Context(), tool.Call{Args: string(args), Create: f.create})
	if err != nil {
		t.Fatal(err)
	}
	want := []event.Part{{Type: event.PartFile, ArtifactID: "art_1", Name: "報告.md", MediaType: "text/markdown", Bytes: int64(len(content))}}
	if !reflect.DeepEqual(res.Content, want) || f.String() != content || f.writes < 5 || f.aborted {
		t.Errorf("%d bytes in %d writes, result %+v", f.Len(), f.writes, res)
	}
}

func TestWriteArtifactGuessesTheMediaType(t *testing.T) {
	for args, want := range map[string]string{
		`{"name":"a.CSV","content":""}`:                          "text/csv",
		`{"name":"a.svg","content":""}`:                          "image/svg+xml",
		`{"name":"Makefile","content":"","media_type":""}`:       "text/plain",
		`{"name":"a.csv","content":"x","media_type":"a/b; c=d"}`: "a/b; c=d",
	} {
		var f file
		res, err := find(t, "write_artifact").Call(t.Context(), tool.Call{Args: args, Create: f.create})
		if err != nil || res.Failed || f.part.MediaType != want {
			t.Errorf("%s: %q, %+v, %v", args, f.part.MediaType, res, err)
		}
	}
}

func TestWriteArtifactGivesUpWhatItCannotFinish(t *testing.T) {
	big, _ := json.Marshal(map[string]string{"name": "a", "content": strings.Repeat("x", 100<<10)})
	ctx, cancel := context.WithCancel(t.Context())
	full := errors.New("disk full")
	for name, c := range map[string]struct {
		onWrite func() error
		want    error
	}{
		"cancelled": {func() error { cancel(); return nil }, context.Canceled},
		"full":      {func() error { return full }, full},
	} {
		f := file{onWrite: c.onWrite}
		_, err := find(t, "write_artifact").Call(ctx, tool.Call{Args: string(big), Create: f.create})
		if !errors.Is(err, c.want) || !f.aborted || f.writes != 1 {
			t.Errorf("%s: %v after %d writes, aborted %v", name, err, f.writes, f.aborted)
		}
	}
}

// The model must learn which argument is wrong and what is expected.
func TestBadArgumentsAreExplained(t *testing.T) {
	for _, c := range []struct{ tool, args, want string }{
		{"write_artifact", `{"content":"x"}`, `"name" is missing`},
		{"write_artifact", `{"name":"a.md"}`, `"content" is missing`},
		{"write_artifact", `{"name":null,"content":"x"}`, `"name" is missing`},
		{"write_artifact", `{"name":" ","content":"x"}`, `"name" must be a file name`},
		{"write_artifact", `{"name":"..","content":"x"}`, `"name" must be a file name`},
		{"write_artifact", `{"name":"a/b.md","content":"x"}`, `without folders: "a/b.md"`},
		{"write_artifact", `{"name":"a\nb","content":"x"}`, `control characters`},
		{"write_artifact", `{"name":"` + strings.Repeat("x", 256) + `","content":"x"}`, `at most 255 bytes`},
		{"write_artifact", `{"name":7,"content":"x"}`, `"name" must be a string (got: number)`},
		{"write_artifact", `{"name":"a","content":{"x":1}}`, `"content" must be a string (got: object)`},
		{"write_artifact", `{"name":"a","content":"x","media_type":"html"}`, `"media_type" must look like`},
		{"write_artifact", `{"filename":"a","content":"x"}`, `no argument "filename". The arguments are name, content and media_type`},
		{"write_artifact", `[1]`, `must be one JSON object`},
		{"write_artifact", `{"name":"a"`, `must be one JSON object`},
		{"write_artifact", `{"name":"a","content":"x"} {}`, `nothing after it`},
		{"write_artifact", ``, `must be one JSON object`},
		{"read_artifact", `{}`, `"artifact_id" is missing`},
		{"read_artifact", `{"artifact_id":"art_9"}`, `no artifact "art_9"`},
		{"read_artifact", `{"artifact_id":"art_1","offset":-1}`, `"offset" must be 0 or more`},
		{"read_artifact", `{"artifact_id":"art_1","offset":"7"}`, `"offset" must be a whole number (got: string)`},
		{"read_artifact", `{"artifact_id":"art_1","offset":1.5}`, `"offset" must be a whole number`},
		{"read_artifact", `{"artifact_id":"art_1","offset":6}`, `is 6, but the artifact ends at 5`},
		{"read_artifact", `{"artifact_id":"art_1","limit":0}`, `"limit" must be from 1 to 262144: it is 0`},
		{"read_artifact", `{"artifact_id":"art_1","limit":262145}`, `"limit" must be from 1 to 262144`},
	} {
		var f file
		f.WriteString("hello")
		res, err := find(t, c.tool).Call(t.Context(), tool.Call{Args: c.args, Create: f.create, Open: f.open})
		if err != nil || !res.Failed || !strings.Contains(textOf(res), c.want) {
			t.Errorf("%s %s:\n got %q, %v\nwant %q", c.tool, c.args, textOf(res), err, c.want)
		}
	}
}

// Whatever the limit, reading on from each next offset yields the whole text.
func TestReadArtifactPagesAtRuneBoundaries(t *testing.T) {
	var f file
	f.part = event.Part{ArtifactID: "art_1", Name: "a.txt", MediaType: "text/plain"}
	f.WriteString(strings.Repeat("aé漢🙂\r\n\u2028", 40))
	read := find(t, "read_artifact")
	for _, limit := range []int64{1, 2, 3, 4, 5, 7, 64, 1000, 256 << 10} {
		var got strings.Builder
		for offset, more := int64(0), true; more; {
			args, _ := json.Marshal(map[string]any{"artifact_id": "art_1", "offset": offset, "limit": limit})
			res, err := read.Call(t.Context(), tool.Call{Args: string(args), Open: f.open})
			if err != nil || res.Failed || len(res.Content) != 2 || !utf8.ValidString(res.Content[1].Text) {
				t.Fatalf("limit %d, offset %d: %+v, %v", limit, offset, res, err)
			}
			if n := int64(len(res.Content[1].Text)); n > max(limit, 4) {
				t.Fatalf("limit %d, but %d bytes came", limit, n)
			}
			got.WriteString(res.Content[1].Text)
			var where struct {
				NextOffset int64 `json:"next_offset"`
				Total      int64 `json:"total"`
			}
			if err := json.Unmarshal(res.Structured, &where); err != nil || where.Total != int64(f.Len()) {
				t.Fatalf("structured is %s", res.Structured)
			}
			if more = where.NextOffset > 0; more && where.NextOffset <= offset {
				t.Fatalf("limit %d: no way on from %d", limit, offset)
			}
			offset = where.NextOffset
		}
		if got.String() != f.String() {
			t.Errorf("limit %d: the pages do not make the whole", limit)
		}
	}
}

func TestReadArtifactSaysWhereItIs(t *testing.T) {
	var f file
	f.part = event.Part{ArtifactID: "art_1", Name: "a.txt", MediaType: "text/plain"}
	f.WriteString("äöü") // six bytes
	for args, want := range map[string]string{
		`{"artifact_id":"art_1"}`:                      "[artifact art_1, \"a.txt\", text/plain, bytes 0 to 6 of 6. This is the end.]\näöü",
		`{"artifact_id":"art_1","offset":1}`:           "[artifact art_1, \"a.txt\", text/plain, bytes 2 to 6 of 6. This is the end.]\nöü",
		`{"artifact_id":"art_1","offset":6}`:           "[artifact art_1, \"a.txt\", text/plain, bytes 6 to 6 of 6. This is the end.]\n",
		`{"artifact_id":"art_1","offset":0,"limit":3}`: "[artifact art_1, \"a.txt\", text/plain, bytes 0 to 2 of 6. Read on with offset 2.]\nä",
	} {
		res, err := find(t, "read_artifact").Call(t.Context(), tool.Call{Args: args, Open: f.open})
		if err != nil || res.Failed || textOf(res) != want {
			t.Errorf("%s:\n got %q, %v\nwant %q", args, textOf(res), err, want)
		}
	}
}

func TestReadArtifactDoesNotShowBytes(t *testing.T) {
	for name, c := range map[string]struct{ mediaType, content string }{
		"an image":      {"image/png", "text in truth"},
		"unknown bytes": {"application/octet-stream", "a\x00b"},
		"not UTF-8":     {"text/plain", "caf\xe9 au lait"},
		"cut UTF-8":     {"text/plain", "caf\xc3"},
	} {
		var f file
		f.part = event.Part{ArtifactID: "art_1", MediaType: c.mediaType}
		f.WriteString(c.content)
		res, err := find(t, "read_artifact").Call(t.Context(), tool.Call{Args: `{"artifact_id":"art_1"}`, Open: f.open})
		if err != nil || res.Failed || len(res.Content) != 1 || !strings.Contains(textOf(res), c.mediaType) || !strings.Contains(textOf(res), "not text") {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}

func TestReadArtifactPassesOnAFaultOfTheStore(t *testing.T) {
	open := func(context.Context, string) (io.ReadSeekCloser, event.Part, error) {
		return nil, event.Part{}, artifacts.ErrUnavailable
	}
	_, err := find(t, "read_artifact").Call(t.Context(), tool.Call{Args: `{"artifact_id":"art_1"}`, Open: open})
	if !errors.Is(err, artifacts.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
