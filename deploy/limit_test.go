package deploy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// An EventSource that meets a limit is told through every proxy when to come back, by what
// it does not take for a stream's end.
func TestProxiesPassOnWhenToComeBack(t *testing.T) {
	const limit = "RUNLOG_TENANT_STREAMS=1"
	f := startFront(t, limit, limit)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := f.scribe(ctx, "s", "r"); err != nil {
		t.Fatal(err)
	}
	for _, addr := range f.addrs {
		st, err := openStream(ctx, "http://"+addr+"/v1/sessions/s/events", "text/event-stream", "")
		if err != nil {
			t.Fatal(err)
		}
		defer st.close()
		if _, err := st.next(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			_, url := p.up(t, f.addrs[:]...)
			for range 5 {
				st, err := openStream(ctx, url+"/v1/sessions/s/events", "text/event-stream", "1")
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(st.rd)
				st.close()
				if err == nil || st.resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), ": 429 ") || !strings.Contains(string(body), "\nretry: 1") {
					t.Errorf("%s: %q, then %v", st.resp.Status, body, err)
				}
			}
		})
	}
}
