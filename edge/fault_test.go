package edge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/eventlog"
)

// A fault of ours, a panic too, does not end an EventSource. Others get a 500.
func TestFaultsDoNotEndAnEventSource(t *testing.T) {
	s := New(Deps{Log: new(eventlog.Log)}, Options{})
	srv := s.failing(t, io.ErrNoProgress)
	for _, path := range []string{"/panic", "/error"} {
		resp, body, err := askAs(t, srv.URL+path, "")
		if err != nil || resp.StatusCode != 500 {
			t.Errorf("%s: %v %q %v", path, resp, body, err)
		}
		resp, body, err = askAs(t, srv.URL+path, "1")
		if err == nil || resp == nil || resp.StatusCode != 200 || !strings.Contains(body, "\nretry: 1") {
			t.Errorf("%s of an EventSource: %v %q %v", path, resp, body, err)
		}
	}
}

// Once the edge shuts down, what it answers says that the connection closes, and some
// clients would take what is aborted then for whole: it answers nothing.
func TestLimitsOfAnEdgeThatShutsDownAreNotTold(t *testing.T) {
	s := New(Deps{Log: new(eventlog.Log)}, Options{})
	srv := s.failing(t, s.errTooManyStreams(&s.tenants))
	if resp, body, err := askAs(t, srv.URL+"/error", "1"); err == nil || resp == nil {
		t.Fatalf("before: %v %q %v", resp, body, err)
	}
	s.openings.end(time.Second)
	if resp, body, err := askAs(t, srv.URL+"/error", "1"); err == nil || resp != nil {
		t.Errorf("it was told %v %q", resp, body)
	}
}

// failing serves /error, which fails with err, and /panic.
func (s *Server) failing(t *testing.T, err error) *httptest.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /panic", s.endpoint(func(http.ResponseWriter, *http.Request, *call) error { panic("x") }, false))
	mux.Handle("GET /error", s.endpoint(func(http.ResponseWriter, *http.Request, *call) error { return err }, false))
	srv := httptest.NewServer(s.around(mux))
	t.Cleanup(srv.Close)
	return srv
}

// askAs asks for a stream after an id, if there is one, and reads the answer; without one
// resp is nil.
func askAs(t *testing.T, url, last string) (resp *http.Response, body string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	if resp, err = http.DefaultTransport.RoundTrip(req); err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp, string(all), err
}
