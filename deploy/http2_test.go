package deploy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// Over HTTP/2, too, what an edge breaks off is seen as broken off. A proxy that cannot do that does not speak it; those
// that do not by themselves without TLS are told to: nginx at another port, since there it can do nothing else.
func TestProxiesBreakOffOverHTTP2(t *testing.T) {
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(edge.Close)
	port := testservers.FreeAddr(t)
	told := strings.NewReplacer("listen 8080;", "listen 8080; listen "+port+" http2;", "\n{\n", "\n{\n\tservers {\n\t\tprotocols h1 h2c\n\t}\n")
	for _, p := range proxies[:3] {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(p.file)
			if err != nil {
				t.Fatal(err)
			}
			p.file, p.conf = "", told.Replace(string(raw))
			_, url := p.up(t, strings.TrimPrefix(edge.URL, "http://"))
			if strings.Contains(p.conf, port) {
				url = "http://" + port
			}
			if _, err := overHTTP2(t, url+"/readyz"); err != nil {
				t.Logf("speaks no HTTP/2: %v", err)
				return
			}
			if body, err := overHTTP2(t, url+"/v1/sessions/s/events"); err == nil {
				t.Errorf("after %q the end looks proper", body)
			}
		})
	}
}

// overHTTP2 reads an answer to its end.
func overHTTP2(t *testing.T, url string) (body []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	speaks := new(http.Protocols)
	speaks.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: speaks}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
