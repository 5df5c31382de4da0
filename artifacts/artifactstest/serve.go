package artifactstest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/runlog-dev/runlog/artifacts"
)

// testServe asks for the same things of every store; package artifacts tests
// the details of the answers.
func testServe(t *testing.T, e env) {
	content := Content(30, partBytes+5000)
	info := e.store(key("a"), plain, content)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, err := e.Open(r.Context(), key("a"))
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		defer o.Close()
		if err := artifacts.Serve(w, r, o); err != nil {
			t.Errorf("serve: %v", err)
		}
	}))
	defer srv.Close()
	n := len(content)
	for _, c := range []struct {
		method, header, value string
		status                int
		body                  []byte
	}{
		{"GET", "", "", 200, content},
		{"HEAD", "", "", 200, nil},
		{"GET", "Range", "bytes=0-0", 206, content[:1]},
		{"GET", "Range", "bytes=5242870-5242889", 206, content[5242870:5242890]},
		{"GET", "Range", "bytes=-300", 206, content[n-300:]},
		{"GET", "Range", "bytes=1000000-", 206, content[1000000:]},
		{"GET", "Range", "bytes=99999999-", 416, nil},
		{"GET", "If-None-Match", `"` + info.SHA256 + `"`, 304, nil},
	} {
		status, body := request(t, srv.URL, c.method, c.header, c.value)
		if status != c.status || c.status != 416 && !bytes.Equal(body, c.body) {
			t.Errorf("%s %s %s: got %d with %d bytes, want %d with %d", c.method, c.header, c.value, status, len(body), c.status, len(c.body))
		}
	}
}

func request(t *testing.T, url, method, header, value string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != "" {
		req.Header.Set(header, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, value, err)
	}
	return resp.StatusCode, body
}
