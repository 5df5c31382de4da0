package runlog_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/clients/go/edgetest"
	"github.com/runlog-dev/runlog/event"
)

func TestCalls(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	edge.Snapshot = edgetest.GoldenFile(t, "snapshot.json")
	c := quick(edge.URL + "/")
	c.Key = "sk-1"
	run, err := c.Submit(t.Context(), runlog.Submission{Agent: "demo", Input: "hi", SessionID: "s"})
	if err != nil || run.RunID != edge.RunID || run.Status != event.Pending {
		t.Fatalf("Submit: %+v, %v", run, err)
	}
	if r := edge.Requests()[0]; r.Authorization != "Bearer sk-1" || r.Body != `{"agent":"demo","session_id":"s","input":"hi"}` {
		t.Errorf("Submit sent %+v", r)
	}
	run, err = c.GetRun(t.Context(), edge.RunID)
	if err != nil || run.Status != event.Completed || run.Seq != 42 || run.Usage.InputTokens != 132 || !bytes.Contains(run.Raw, []byte(`"ended_at"`)) {
		t.Errorf("GetRun: %+v, %v", run, err)
	}
	run, err = c.Cancel(t.Context(), edge.RunID, runlog.Cancellation{Reason: "enough", Wait: true})
	if err != nil || run.Status != event.Completed {
		t.Errorf("Cancel: %+v, %v", run, err)
	}
	if r := edge.Requests()[2]; r.Body != `{"reason":"enough","wait":true}` {
		t.Errorf("Cancel sent %s", r.Body)
	}
	if raw, err := c.Snapshot(t.Context(), edge.SessionID); err != nil || !bytes.Contains(raw, []byte(`"seq":42`)) {
		t.Errorf("Snapshot: %s, %v", raw, err)
	}
}

func TestRunsWalksThePages(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	n := 0
	for run, err := range quick(edge.URL).Runs(t.Context(), runlog.RunQuery{Agent: "demo", Status: event.Completed, TraceID: "x y", Limit: 1}) {
		if err != nil || run.RunID != edge.RunID {
			t.Fatalf("%+v, %v", run, err)
		}
		n++
	}
	want := []string{"agent=demo&limit=1&status=completed&trace_id=x+y", "agent=demo&cursor=second+page&limit=1&status=completed&trace_id=x+y"}
	for i, r := range edge.Requests() {
		if r.Query != want[i] {
			t.Errorf("query %d: %s, want %s", i, r.Query, want[i])
		}
	}
	if n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

// Trace events are paged, and a page that breaks off anywhere is taken up there.
func TestTraceEvents(t *testing.T) {
	for after := range edgetest.PageSize {
		edge := edgetest.New(t, edgetest.Golden(t))
		edge.Fault = func(n int, _ edgetest.Request) edgetest.Fault {
			return edgetest.Fault{Cut: n%2 == 0, After: after, Inside: 7 * after, Heartbeat: n%2 == 0}
		}
		got, _ := collect(t, quick(edge.URL).TraceEvents(t.Context(), edge.TraceID))
		equal(t, got, golden(t))
	}
	edge := edgetest.New(t, edgetest.Golden(t))
	for range quick(edge.URL).TraceEvents(t.Context(), edge.TraceID) {
		break
	}
	if n := len(edge.Requests()); n != 1 {
		t.Errorf("a reader that left after one event caused %d requests", n)
	}
}

func TestArtifactResumes(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	body := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	edge.Artifacts["big"] = body
	edge.Fault = func(n int, _ edgetest.Request) edgetest.Fault {
		return edgetest.Fault{Cut: n < 3, Inside: 100_001}
	}
	a, err := quick(edge.URL).Artifact(t.Context(), "big")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	got, err := io.ReadAll(a.Body)
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("read %d of %d bytes, %v", len(got), len(body), err)
	}
	if a.Name != "note.md" || a.Size != int64(len(body)) || a.MediaType != "text/markdown" {
		t.Errorf("got %+v", a)
	}
	if r := edge.Requests(); len(r) != 4 || r[1].Range != "bytes=100001-" {
		t.Errorf("requests: %+v", r)
	}
}

// A download never mixes the bytes of two artifacts.
func TestArtifactThatChanged(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	edge.Fault = func(n int, _ edgetest.Request) edgetest.Fault {
		if n == 1 {
			edge.Artifacts["art_1"] = []byte("something else")
		}
		return edgetest.Fault{Cut: n == 0, Inside: 3}
	}
	a, err := quick(edge.URL).Artifact(t.Context(), "art_1")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	got, err := io.ReadAll(a.Body)
	if !errors.Is(err, runlog.ErrChanged) || string(got) != "# N" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestErrorsSayWhatHappened(t *testing.T) {
	plain := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for want, h := range map[string]http.HandlerFunc{
		"get run r: there is no run r (404 not_found)": plain(404, "application/problem+json", `{"status":200,"code":"not_found","detail":"there is no run r"}`),
		"get run r: Conflict (409 conflict)":           plain(409, "application/problem+json", `{"code":"conflict","title":"Conflict"}`),
		"get run r: the server answered 403: denied":   plain(403, "text/plain", "denied\nby proxy"),
		"get run r: the server answered 404: {":        plain(404, "application/problem+json", "{"),
		"is it a runlog server?":                       plain(200, "text/html", "<html>"),
		"unexpected end of JSON input":                 plain(200, "application/json", "{"),
	} {
		url, requests := script(t, h)
		_, err := quick(url).GetRun(t.Context(), "r")
		if err == nil || !strings.HasSuffix(err.Error(), want) || requests.Load() != 1 {
			t.Errorf("got %v after %d requests, want %q", err, requests.Load(), want)
		}
	}
}

// A submission whose answer is lost is repeated as the same one.
func TestSubmitRepeatsWithOneKey(t *testing.T) {
	var keys []string
	url, _ := script(t,
		func(_ http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			panic(http.ErrAbortHandler)
		},
		func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(202)
			_, _ = io.WriteString(w, `{"run_id":"r"}`)
		})
	run, err := quick(url).Submit(t.Context(), runlog.Submission{Input: "hi"})
	if err != nil || run.RunID != "r" || len(keys) != 2 || keys[0] != keys[1] || keys[0] == "" {
		t.Errorf("got %+v, %v with keys %q", run, err, keys)
	}
}

func TestBadAddresses(t *testing.T) {
	for _, base := range []string{"localhost:8080", "ftp://host", "http://", ":", "/path"} {
		_, err := (&runlog.Client{BaseURL: base}).GetRun(t.Context(), "r")
		if err == nil || !strings.Contains(err.Error(), "expected http://host:port") {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func TestTLSToAPlainServerFailsAtOnce(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	c := quick(strings.Replace(edge.URL, "http:", "https:", 1))
	begun := time.Now()
	if _, err := c.GetRun(t.Context(), "r"); err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("got %v after %v", err, time.Since(begun))
	}
}
