package artifacts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
)

// memObject is an Object in memory whose reads can be made to fail.
type memObject struct {
	*bytes.Reader
	info artifacts.Info
	fail func(pos int64) error // nil: never
}

func newMem(meta artifacts.Meta, content string) *memObject {
	return &memObject{
		Reader: bytes.NewReader([]byte(content)),
		info: artifacts.Info{
			Meta: meta, Bytes: int64(len(content)), SHA256: strings.Repeat("ab", 32),
			Created: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		},
	}
}

func (o *memObject) Info() artifacts.Info { return o.info }
func (o *memObject) Close() error         { return nil }

func (o *memObject) Read(p []byte) (int, error) {
	if o.fail != nil {
		if err := o.fail(o.Size() - int64(o.Len())); err != nil {
			return 0, err
		}
	}
	return o.Reader.Read(p)
}

// ask serves o once; pairs are request headers.
func ask(t testing.TB, o artifacts.Object, method string, pairs ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, "/artifacts/a", nil)
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Add(pairs[i], pairs[i+1])
	}
	w := httptest.NewRecorder()
	if err := artifacts.Serve(w, r, o); err != nil {
		t.Fatalf("serve: %v", err)
	}
	return w
}

const (
	digits = "0123456789"
	etag   = `"abababababababababababababababababababababababababababababababab"`
)

func TestServeConditionsAndRanges(t *testing.T) {
	for _, c := range []struct {
		name, method string
		headers      []string
		status       int
		body         string
		contentRange string
	}{
		{"whole", "GET", nil, 200, digits, ""},
		{"head", "HEAD", nil, 200, "", ""},
		{"first byte", "GET", []string{"Range", "bytes=0-0"}, 206, "0", "bytes 0-0/10"},
		{"middle", "GET", []string{"Range", "bytes=3-5"}, 206, "345", "bytes 3-5/10"},
		{"open end", "GET", []string{"Range", "bytes=8-"}, 206, "89", "bytes 8-9/10"},
		{"beyond the end", "GET", []string{"Range", "bytes=8-1000"}, 206, "89", "bytes 8-9/10"},
		{"suffix", "GET", []string{"Range", "bytes=-3"}, 206, "789", "bytes 7-9/10"},
		{"suffix longer than all", "GET", []string{"Range", "bytes=-30"}, 206, digits, "bytes 0-9/10"},
		{"suffix of nothing", "GET", []string{"Range", "bytes=-0"}, 416, "", "bytes */10"},
		{"start at the end", "GET", []string{"Range", "bytes=10-"}, 416, "", "bytes */10"},
		{"number beyond int64", "GET", []string{"Range", "bytes=99999999999999999999-"}, 416, "", "bytes */10"},
		{"end beyond int64", "GET", []string{"Range", "bytes=9-99999999999999999999"}, 206, "9", "bytes 9-9/10"},
		{"one of two satisfiable", "GET", []string{"Range", "bytes=20-30,4-4"}, 206, "4", "bytes 4-4/10"},
		{"unit in capitals", "GET", []string{"Range", "Bytes=1-1"}, 206, "1", "bytes 1-1/10"},
		{"empty list elements", "GET", []string{"Range", "bytes=, 1-1 ,"}, 206, "1", "bytes 1-1/10"},

		{"other unit", "GET", []string{"Range", "lines=0-1"}, 200, digits, ""},
		{"no unit", "GET", []string{"Range", "0-1"}, 200, digits, ""},
		{"end before start", "GET", []string{"Range", "bytes=5-3"}, 200, digits, ""},
		{"not a number", "GET", []string{"Range", "bytes=a-3"}, 200, digits, ""},
		{"signed", "GET", []string{"Range", "bytes=+1-3"}, 200, digits, ""},
		{"double dash", "GET", []string{"Range", "bytes=--3"}, 200, digits, ""},
		{"just a dash", "GET", []string{"Range", "bytes=-"}, 200, digits, ""},
		{"nothing", "GET", []string{"Range", "bytes="}, 200, digits, ""},
		{"only commas", "GET", []string{"Range", "bytes=,,,"}, 200, digits, ""},
		{"blank inside", "GET", []string{"Range", "bytes=1 - 2"}, 200, digits, ""},
		{"valid and invalid", "GET", []string{"Range", "bytes=0-1,x"}, 200, digits, ""},
		{"two headers", "GET", []string{"Range", "bytes=0-1", "Range", "bytes=2-3"}, 200, digits, ""},
		{"too many ranges", "GET", []string{"Range", "bytes=" + strings.Repeat("1-1,", 16) + "1-1"}, 200, digits, ""},
		{"more bytes than all", "GET", []string{"Range", "bytes=0-,0-,0-"}, 200, digits, ""},
		{"range on head", "HEAD", []string{"Range", "bytes=0-1"}, 200, "", ""},

		{"if-range same", "GET", []string{"Range", "bytes=0-1", "If-Range", etag}, 206, "01", "bytes 0-1/10"},
		{"if-range other", "GET", []string{"Range", "bytes=0-1", "If-Range", `"other"`}, 200, digits, ""},
		{"if-range weak", "GET", []string{"Range", "bytes=0-1", "If-Range", "W/" + etag}, 200, digits, ""},
		{"if-range date", "GET", []string{"Range", "bytes=0-1", "If-Range", "Wed, 04 Mar 2026 05:06:07 GMT"}, 206, "01", "bytes 0-1/10"},
		{"if-range old date", "GET", []string{"Range", "bytes=0-1", "If-Range", "Wed, 04 Mar 2026 05:06:06 GMT"}, 200, digits, ""},
		{"if-range junk", "GET", []string{"Range", "bytes=0-1", "If-Range", "junk"}, 200, digits, ""},
		{"if-range alone", "GET", []string{"If-Range", etag}, 200, digits, ""},
		{"if-none-match same", "GET", []string{"If-None-Match", etag}, 304, "", ""},
		{"if-none-match weak", "HEAD", []string{"If-None-Match", "W/" + etag}, 304, "", ""},
		{"if-none-match star", "GET", []string{"If-None-Match", "*"}, 304, "", ""},
		{"if-none-match other", "GET", []string{"If-None-Match", `"other", "more"`}, 200, digits, ""},
		{"if-none-match before range", "GET", []string{"If-None-Match", etag, "Range", "bytes=0-1"}, 304, "", ""},
		{"if-match other", "GET", []string{"If-Match", `"other"`}, 412, "", ""},
		{"if-match same", "GET", []string{"If-Match", etag, "Range", "bytes=0-1"}, 206, "01", "bytes 0-1/10"},
		{"if-modified-since", "GET", []string{"If-Modified-Since", "Wed, 04 Mar 2026 05:06:07 GMT"}, 304, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ask(t, newMem(artifacts.Meta{MediaType: "text/plain"}, digits), c.method, c.headers...)
			if w.Code != c.status || w.Code < 400 && w.Body.String() != c.body {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, c.status, c.body)
			}
			if got := w.Header().Get("Content-Range"); got != c.contentRange {
				t.Errorf("Content-Range: got %q, want %q", got, c.contentRange)
			}
			if w.Code == 200 && (w.Header().Get("Content-Length") != "10" || w.Header().Get("Accept-Ranges") != "bytes") {
				t.Errorf("got headers %v, want the length and Accept-Ranges", w.Header())
			}
		})
	}
}

func TestServeEmpty(t *testing.T) {
	for _, c := range []struct{ method, rng string }{{"GET", ""}, {"GET", "bytes=0-"}, {"GET", "bytes=-5"}, {"HEAD", ""}} {
		w := ask(t, newMem(artifacts.Meta{MediaType: "text/plain"}, ""), c.method, "Range", c.rng)
		if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "0" {
			t.Errorf("%s %q of nothing: got %d, %v", c.method, c.rng, w.Code, w.Header())
		}
	}
}

func TestServeSeveralRanges(t *testing.T) {
	w := ask(t, newMem(artifacts.Meta{MediaType: "text/plain"}, digits), "GET", "Range", "bytes=7-8, 0-1, 50-60, -1")
	parts := readParts(t, w)
	want := []byteRange{{"bytes 7-8/10", "78"}, {"bytes 0-1/10", "01"}, {"bytes 9-9/10", "9"}}
	if fmt.Sprint(parts) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", parts, want)
	}
}

type byteRange struct{ contentRange, body string }

func readParts(t testing.TB, w *httptest.ResponseRecorder) []byteRange {
	t.Helper()
	mediaType, params, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if w.Code != 206 || err != nil || mediaType != "multipart/byteranges" {
		t.Fatalf("got %d with %v, want multipart/byteranges", w.Code, w.Header())
	}
	if got := w.Header().Get("Content-Length"); got != strconv.Itoa(w.Body.Len()) {
		t.Errorf("Content-Length: got %s, want %d", got, w.Body.Len())
	}
	var parts []byteRange
	for mr := multipart.NewReader(w.Body, params["boundary"]); ; {
		p, err := mr.NextPart()
		if err == io.EOF {
			return parts
		}
		if err != nil {
			t.Fatalf("part %d: %v", len(parts), err)
		}
		b, err := io.ReadAll(p)
		if err != nil {
			t.Fatalf("part %d: %v", len(parts), err)
		}
		parts = append(parts, byteRange{p.Header.Get("Content-Range"), string(b)})
	}
}

func TestServeHeaders(t *testing.T) {
	const csp = "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
	for _, c := range []struct {
		meta              artifacts.Meta
		mediaType, dispos string
	}{
		{artifacts.Meta{Name: "a.png", MediaType: "image/png"}, "image/png", `inline; filename="a.png"`},
		{artifacts.Meta{Name: "a.txt", MediaType: "text/plain"}, "text/plain; charset=utf-8", `inline; filename="a.txt"`},
		{artifacts.Meta{Name: "a.txt", MediaType: "TEXT/Plain; Charset=latin1; x=y"}, "text/plain; charset=latin1", `inline; filename="a.txt"`},
		{artifacts.Meta{Name: "a.json", MediaType: "application/json"}, "application/json", `inline; filename="a.json"`},
		{artifacts.Meta{Name: "a.html", MediaType: "text/html"}, "text/html; charset=utf-8", `attachment; filename="a.html"`},
		{artifacts.Meta{Name: "a.html", MediaType: "Text/HTML; charset=utf-8"}, "text/html; charset=utf-8", `attachment; filename="a.html"`},
		{artifacts.Meta{Name: "a.svg", MediaType: "image/svg+xml"}, "image/svg+xml", `attachment; filename="a.svg"`},
		{artifacts.Meta{Name: "a.xhtml", MediaType: "application/xhtml+xml"}, "application/xhtml+xml", `attachment; filename="a.xhtml"`},
		{artifacts.Meta{Name: "a.pdf", MediaType: "application/pdf"}, "application/pdf", `attachment; filename="a.pdf"`},
		{artifacts.Meta{Name: "a.js", MediaType: "text/javascript"}, "text/plain; charset=utf-8", `attachment; filename="a.js"`},
		{artifacts.Meta{Name: "a.js", MediaType: "application/x-JavaScript"}, "text/plain; charset=utf-8", `attachment; filename="a.js"`},
		{artifacts.Meta{Name: "a.css", MediaType: "text/css"}, "text/plain; charset=utf-8", `attachment; filename="a.css"`},
		{artifacts.Meta{Name: "", MediaType: "nonsense"}, "application/octet-stream", `attachment; filename="artifact"`},
		{artifacts.Meta{Name: "a", MediaType: "multipart/x-mixed-replace; boundary=b"}, "multipart/x-mixed-replace", `attachment; filename="a"`},

		{artifacts.Meta{Name: "отчёт.pdf", MediaType: "a/b"}, "a/b", `attachment; filename="_____.pdf"; filename*=UTF-8''%D0%BE%D1%82%D1%87%D1%91%D1%82.pdf`},
		{artifacts.Meta{Name: "日本.txt", MediaType: "a/b"}, "a/b", `attachment; filename="__.txt"; filename*=UTF-8''%E6%97%A5%E6%9C%AC.txt`},
		{artifacts.Meta{Name: `say "hi".txt`, MediaType: "a/b"}, "a/b", `attachment; filename="say _hi_.txt"`},
		{artifacts.Meta{Name: "100% a+b.txt", MediaType: "a/b"}, "a/b", `attachment; filename="100_ a+b.txt"; filename*=UTF-8''100%25%20a+b.txt`},
		{artifacts.Meta{Name: `../..\etc/passwd`, MediaType: "a/b"}, "a/b", `attachment; filename="passwd"`},
		{artifacts.Meta{Name: "..", MediaType: "a/b"}, "a/b", `attachment; filename="artifact"`},
		{artifacts.Meta{Name: " .bashrc. ", MediaType: "a/b"}, "a/b", `attachment; filename="bashrc"`},
		{artifacts.Meta{Name: "a\u202egpj.exe", MediaType: "a/b"}, "a/b", `attachment; filename="agpj.exe"`},
		{artifacts.Meta{Name: "a\r\nSet-Cookie: x\u2028.txt", MediaType: "a/b"}, "a/b", `attachment; filename="aSet-Cookie_ x.txt"`},
		{artifacts.Meta{Name: "a\xff.txt", MediaType: "a/b"}, "a/b", `attachment; filename="a_.txt"`},
		{artifacts.Meta{Name: "C:\\x\\y<1>.txt", MediaType: "a/b"}, "a/b", `attachment; filename="y_1_.txt"`},
		{artifacts.Meta{Name: "👨\u200d👩.png", MediaType: "image/png"}, "image/png", `inline; filename="___.png"; filename*=UTF-8''%F0%9F%91%A8%E2%80%8D%F0%9F%91%A9.png`},
	} {
		h := ask(t, newMem(c.meta, digits), "GET").Header()
		for name, want := range map[string]string{
			"Content-Type": c.mediaType, "Content-Disposition": c.dispos, "ETag": etag, "X-Content-Type-Options": "nosniff",
			"Cache-Control": "private, max-age=31536000, immutable, no-transform", "Content-Security-Policy": csp,
			"Last-Modified": "Wed, 04 Mar 2026 05:06:07 GMT",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%+q: %s: got %q, want %q", c.meta, name, got, want)
			}
		}
	}
}

// TestDispositionIsReadBack parses what is sent with a parser that is not ours.
func TestDispositionIsReadBack(t *testing.T) {
	for name, want := range map[string]string{
		"تقرير نهائي.docx": "تقرير نهائي.docx", "naïve & co;x=y.txt": "naïve & co;x=y.txt", "a'b(c)*.txt": "a'b(c)_.txt",
		strings.Repeat("語", 100) + ".tar.gz": strings.Repeat("語", 65) + ".gz", strings.Repeat("x", 255): strings.Repeat("x", 200),
	} {
		h := ask(t, newMem(artifacts.Meta{Name: name, MediaType: "a/b"}, ""), "GET").Header().Get("Content-Disposition")
		kind, params, err := mime.ParseMediaType(h)
		if err != nil || kind != "attachment" || params["filename"] != want {
			t.Errorf("%q: got %q, %q, %v, want attachment %q (from %q)", name, kind, params["filename"], err, want, h)
		}
	}
}

var errLost = errors.New("store lost")

// TestServeStoreFails: before the first byte the caller may still answer, and
// finds the headers as they were; later the connection is cut.
func TestServeStoreFails(t *testing.T) {
	at := func(n int64) func(int64) error {
		return func(pos int64) error {
			if pos >= n {
				return errLost
			}
			return nil
		}
	}
	big := strings.Repeat("x", 1<<20)
	for _, rng := range []string{"", "bytes=5-900000", "bytes=5-"} {
		o := newMem(artifacts.Meta{}, big)
		o.fail = at(0)
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header.Set("Range", rng)
		w.Header().Set("X-Request-Id", "7")
		if err := artifacts.Serve(w, r, o); !errors.Is(err, errLost) {
			t.Errorf("range %q: got %v, want %v", rng, err, errLost)
		}
		if w.Flushed || w.Body.Len() > 0 || len(w.Header()) != 1 {
			t.Errorf("range %q: something was answered: %v", rng, w.Header())
		}
	}
	for _, rng := range []string{"", "bytes=5-900000", "bytes=0-1,600000-900000"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o := newMem(artifacts.Meta{}, big)
			o.fail = at(500_000)
			artifacts.Serve(w, r, o) //nolint:errcheck // it panics
		}))
		srv.Config.ErrorLog = nil
		r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
		r.Header.Set("Range", rng)
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("range %q: the client took a part for the whole", rng)
		}
		srv.Close()
	}
}

// TestServeLetsGoOfTheObject: a client that leaves in the middle of several
// ranges leaves nobody reading behind (the race detector watches).
func TestServeLetsGoOfTheObject(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for range 20 {
		o := newMem(artifacts.Meta{}, big)
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Range", "bytes=0-400000,400001-900000")
		if err := artifacts.Serve(&goneWriter{header: http.Header{}}, r, o); err != nil {
			t.Errorf("a client that left: got %v, want nil", err)
		}
		o.Seek(0, io.SeekStart) //nolint:errcheck // a write to what a reader that stayed would read
	}
}

// goneWriter is a client that takes 100 KB and leaves.
type goneWriter struct {
	header http.Header
	taken  int
}

func (w *goneWriter) Header() http.Header { return w.header }
func (w *goneWriter) WriteHeader(int)     {}
func (w *goneWriter) Write(p []byte) (int, error) {
	if w.taken += len(p); w.taken > 100_000 {
		return 0, context.Canceled
	}
	return len(p), nil
}

// FuzzRange holds Serve to RFC 9110 for any Range: what is sent is what
// Content-Range says, never out of bounds, never too many parts.
func FuzzRange(f *testing.F) {
	for _, s := range []string{
		"bytes=0-0", "bytes=-1", "bytes=5-", "bytes=0-1,3-4", "bytes=9-5", "bytes=-0", "bytes=99-", "lines=1-2", "bytes=0-0,-1,99-,2-3",
		"bytes=18446744073709551616-", "bytes=0-18446744073709551616", "BYTES = 1-2", "bytes=,\t,1-1", "bytes=0x1-2", "bytes=١-٢",
	} {
		f.Add(s, uint8(10))
	}
	f.Fuzz(func(t *testing.T, header string, size uint8) {
		content := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", 8)[:size]
		w := ask(t, newMem(artifacts.Meta{MediaType: "text/plain"}, content), "GET", "Range", header)
		switch w.Code {
		case 200:
			if w.Body.String() != content || w.Header().Get("Content-Range") != "" {
				t.Errorf("200 with %q, %v", w.Body, w.Header())
			}
		case 416:
			if got := w.Header().Get("Content-Range"); got != fmt.Sprintf("bytes */%d", size) {
				t.Errorf("416 with Content-Range %q", got)
			}
		case 206:
			parts := []byteRange{{w.Header().Get("Content-Range"), w.Body.String()}}
			if parts[0].contentRange == "" {
				parts = readParts(t, w)
			}
			checkParts(t, parts, content)
		default:
			t.Errorf("status %d", w.Code)
		}
		if from, to, ok := simpleRange(header, int(size)); ok && (w.Code != 206 || w.Body.String() != content[from:to]) {
			t.Errorf("%q of %d bytes: got %d %q, want 206 %q", header, size, w.Code, w.Body, content[from:to])
		}
	})
}

func checkParts(t *testing.T, parts []byteRange, content string) {
	t.Helper()
	if len(parts) > 16 {
		t.Errorf("%d parts", len(parts))
	}
	for _, p := range parts {
		var first, last, size int
		if _, err := fmt.Sscanf(p.contentRange, "bytes %d-%d/%d", &first, &last, &size); err != nil {
			t.Fatalf("Content-Range %q: %v", p.contentRange, err)
		}
		if first < 0 || first > last || last >= size || size != len(content) || p.body != content[first:last+1] {
			t.Errorf("part %q has body %q of %q", p.contentRange, p.body, content)
		}
	}
}

// simpleRange understands a plain bytes=a-b within the content, no more.
func simpleRange(header string, size int) (from, to int, ok bool) {
	var a, b int
	n, _ := fmt.Sscanf(header, "bytes=%d-%d", &a, &b)
	plain := n == 2 && header == fmt.Sprintf("bytes=%d-%d", a, b)
	return a, b + 1, plain && a >= 0 && a <= b && b < size
}
