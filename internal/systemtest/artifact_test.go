package systemtest

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/examples/demotools"
)

// An artifact over both edges, in all the ways that HTTP has to ask for a part of it.
func artifactRanges(t *testing.T, p *production) {
	const content = "0123456789 and so on, 漢字"
	const name = "märz 漢字 🙂.txt"
	r := p.at[0].finish(t, request{Input: "write " + content})
	if len(r.Artifacts) != 1 || r.Artifacts[0].Bytes != int64(len(content)) {
		t.Fatalf("artifacts of the run: %+v", r.Artifacts)
	}
	path := r.Artifacts[0].URL
	for _, e := range p.at {
		whole := e.get(t, path)
		etag := whole.Header.Get("ETag")
		checkName(t, whole.Header, name)
		for _, c := range []struct {
			what, body string
			status     int
			headers    []string
		}{
			{"the whole", content, 200, nil},
			{"the beginning", "0123", 206, []string{"Range", "bytes=0-3"}},
			{"the end", content[4:], 206, []string{"Range", "bytes=4-"}},
			{"a suffix", "漢字", 206, []string{"Range", "bytes=-6"}},
			{"more than there is", content[10:], 206, []string{"Range", "bytes=10-9999"}},
			{"beyond the end", "", 416, []string{"Range", "bytes=9999-"}},
			{"a part if unchanged", "0123", 206, []string{"Range", "bytes=0-3", "If-Range", etag}},
			{"a part if another", content, 200, []string{"Range", "bytes=0-3", "If-Range", `"other"`}},
			{"what is known", "", 304, []string{"If-None-Match", etag}},
			{"another version", "", 412, []string{"If-Match", `"other"`}},
			{"a unit that is not known", content, 200, []string{"Range", "lines=0-3"}},
		} {
			a := e.do(t, c.status, http.MethodGet, path, "", c.headers...)
			if c.status < 300 && string(a.body) != c.body {
				t.Errorf("%s: %q, want %q", c.what, a.body, c.body)
			}
			if c.status < 400 && a.Header.Get("ETag") != etag {
				t.Errorf("%s: ETag %q, want %q", c.what, a.Header.Get("ETag"), etag)
			}
		}
		if got := e.do(t, 416, http.MethodGet, path, "", "Range", "bytes=9999-").Header.Get("Content-Range"); got != fmt.Sprintf("bytes */%d", len(content)) {
			t.Errorf("416 says Content-Range %q", got)
		}
		head := e.do(t, 200, http.MethodHead, path, "")
		if head.ContentLength != int64(len(content)) || len(head.body) > 0 || head.Header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("HEAD: %d bytes, body %q, %v", head.ContentLength, head.body, head.Header)
		}
	}
	checkLog(t, p.at[0], r.SessionID)
}

// checkName looks for the name under which a browser saves the artifact.
func checkName(t *testing.T, h http.Header, want string) {
	t.Helper()
	_, params, err := mime.ParseMediaType(h.Get("Content-Disposition"))
	if got, _ := url.PathUnescape(params["filename"]); err != nil || got != want && params["filename"] != want {
		t.Errorf("Content-Disposition %q: name %q (%v), want %q", h.Get("Content-Disposition"), params["filename"], err, want)
	}
	if got := h.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options %q", got)
	}
}

// A result of three megabytes is cut in the log, whole in an artifact, and can be read on by the model.
func bigResult(t *testing.T, p *production) {
	r := p.at[0].finish(t, request{Input: "big"})
	want := demotools.Prose(3_000_000)
	call := r.ToolCalls[0]
	if !call.Truncated || call.Artifact == nil || len(call.Content) == 0 {
		t.Fatalf("the call: truncated %v, artifact %+v, %d parts", call.Truncated, call.Artifact, len(call.Content))
	}
	kept := call.Content[0].Text
	if !utf8.ValidString(kept) || !strings.HasPrefix(want, kept) || len(kept) > 512<<10 || len(kept) < 100<<10 {
		t.Errorf("%d bytes are kept, valid %v, the beginning %v", len(kept), utf8.ValidString(kept), strings.HasPrefix(want, kept))
	}
	whole := p.at[1].get(t, call.Artifact.URL)
	if !bytes.Equal(whole.body, []byte(want)) {
		t.Errorf("the artifact has %d bytes and is not what the tool said", len(whole.body))
	}
	if _, read, ok := strings.Cut(r.Text, "]\n"); !ok || len(read) < 100 || !strings.HasPrefix(want[len(kept):], read) {
		t.Errorf("the model read on and got %q", r.Text)
	}
	for _, e := range checkLog(t, p.at[0], r.SessionID) {
		if n := len(e.AppendLine(nil)); n > event.MaxEncoded {
			t.Errorf("event %d, %s, has %d bytes", e.Seq, e.Type, n)
		}
	}
}

// What a client uploads comes back, and is bounded.
func upload(t *testing.T, p *production) {
	a := p.at[0].do(t, http.StatusCreated, http.MethodPost, "/v1/artifacts?name=a%20b.txt", "hello", "Content-Type", "text/plain")
	info := into[struct {
		ID     string `json:"artifact_id"`
		Bytes  int64
		SHA256 string
	}](t, a)
	if info.Bytes != 5 || info.SHA256 != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Errorf("%s", a.body)
	}
	got := p.at[1].get(t, a.Header.Get("Location"))
	if string(got.body) != "hello" || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("%q of type %q", got.body, got.Header.Get("Content-Type"))
	}
	checkName(t, got.Header, "a b.txt")
	large := strings.Repeat("x", 300<<10)
	pr := p.at[0].refused(t, http.StatusRequestEntityTooLarge, event.CodeTooLarge, http.MethodPost, "/v1/runs", request{Input: large}.body())
	if !strings.Contains(pr.Detail, "262144") {
		t.Errorf("a body that is too large is refused without the number: %+v", pr)
	}
}
