package runlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/clients/go/edgetest"
	"github.com/runlog-dev/runlog/clients/go/sse"
	"github.com/runlog-dev/runlog/event"
)

// quick is a client that does not wait long between tries.
func quick(bases ...string) *runlog.Client {
	return &runlog.Client{
		BaseURL: bases[0], Fallbacks: bases[1:],
		MinDelay: time.Millisecond, MaxDelay: 4 * time.Millisecond, Idle: 10 * time.Second, Patience: 20 * time.Second,
	}
}

// collect gathers the lines of the log's events and the other messages' types.
func collect(t testing.TB, events iter.Seq2[event.Event, error]) (lines []string, others []event.Type) {
	t.Helper()
	for e, err := range events {
		if err != nil {
			t.Fatalf("after %d events: %v", len(lines), err)
		}
		if e.ID == "" {
			others = append(others, e.Type)
			continue
		}
		lines = append(lines, string(e.AppendLine(nil)))
	}
	return lines, others
}

// golden returns the golden run's lines as a client sees them.
func golden(t testing.TB) (lines []string) {
	for _, e := range edgetest.Golden(t) {
		if !e.Internal {
			lines = append(lines, string(e.AppendLine(nil)))
		}
	}
	return lines
}

func equal(t testing.TB, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("got %d events, want %d; first missing: %s", len(got), len(want), want[i])
		case i >= len(want):
			t.Fatalf("got %d events, want %d; first extra: %s", len(got), len(want), got[i])
		case got[i] != want[i]:
			t.Fatalf("event %d\ngot  %s\nwant %s", i, got[i], want[i])
		}
	}
}

// Whatever happens to the connection, the viewer gets the golden run, once and
// in order, and the stream ends.
func TestEveryEventOnceWhateverBreaks(t *testing.T) {
	type plan = func(n int, r edgetest.Request) edgetest.Fault
	first := func(f edgetest.Fault) plan {
		return func(n int, _ edgetest.Request) edgetest.Fault {
			if n == 0 {
				return f
			}
			return edgetest.Fault{}
		}
	}
	always := func(f edgetest.Fault) plan {
		return func(int, edgetest.Request) edgetest.Fault { return f }
	}
	visible := len(golden(t))
	plans := map[string]plan{
		"nothing":                     nil,
		"one byte per chunk":          always(edgetest.Fault{OneByte: true}),
		"CRLF":                        always(edgetest.Fault{LineEnd: "\r\n"}),
		"CR, one byte per chunk":      always(edgetest.Fault{LineEnd: "\r", OneByte: true}),
		"every message twice":         always(edgetest.Fault{Repeat: true}),
		"twice, cut all the time":     always(edgetest.Fault{Repeat: true, Cut: true, After: 4}),
		"heartbeats":                  always(edgetest.Fault{Heartbeat: true}),
		"comments and a mark":         always(edgetest.Fault{Preamble: "\uFEFF: hi\nretry: 3\n\n: there\n"}),
		"a cut after each event":      always(edgetest.Fault{Cut: true, After: 1}),
		"a clean end after each":      always(edgetest.Fault{Cut: true, After: 1, Clean: true}),
		"a cut inside each":           always(edgetest.Fault{Cut: true, After: 1, Inside: 30}),
		"503 at first":                first(edgetest.Fault{Status: 503, RetryAfter: "0"}),
		"502, 429, 500 in mid-stream": statuses(502, 429, 500),
	}
	for after := range visible + 1 {
		plans[fmt.Sprintf("cut after %d", after)] = first(edgetest.Fault{Cut: true, After: after})
		plans[fmt.Sprintf("clean end after %d", after)] = first(edgetest.Fault{Cut: true, After: after, Clean: true})
		plans[fmt.Sprintf("cut inside %d", after)] = first(edgetest.Fault{Cut: true, After: after, Inside: 1 << 20})
		plans[fmt.Sprintf("clean end inside %d", after)] = first(edgetest.Fault{Cut: true, After: after, Inside: 40, Clean: true})
	}
	want := golden(t)
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			edge := edgetest.New(t, edgetest.Golden(t))
			edge.Fault = plan
			got, _ := collect(t, quick(edge.URL).RunEvents(t.Context(), edge.RunID, runlog.EventOptions{}))
			equal(t, got, want)
		})
	}
}

// statuses fails each odd connection with the next status, and cuts the others.
func statuses(codes ...int) func(int, edgetest.Request) edgetest.Fault {
	return func(n int, _ edgetest.Request) edgetest.Fault {
		if n%2 == 1 && n/2 < len(codes) {
			return edgetest.Fault{Status: codes[n/2]}
		}
		return edgetest.Fault{Cut: n/2 < len(codes), After: 5}
	}
}

// The cursor of a reconnect is the last complete event, and nothing that was
// seen is asked for again.
func TestReconnectSendsTheLastCompleteID(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	edge.Fault = func(n int, _ edgetest.Request) edgetest.Fault {
		return edgetest.Fault{Cut: n < 2, After: 3, Inside: 50 * n}
	}
	collect(t, quick(edge.URL).RunEvents(t.Context(), edge.RunID, runlog.EventOptions{}))
	var ids []string
	for _, r := range edge.Requests() {
		ids = append(ids, r.LastEventID)
	}
	if got := strings.Join(ids, ","); got != ",4,7" { // 2 is internal
		t.Errorf("Last-Event-ID of the connections: %q", got)
	}
}

func TestAfterAndOver(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	got, _ := collect(t, quick(edge.URL).RunEvents(t.Context(), edge.RunID, runlog.EventOptions{After: 40}))
	equal(t, got, golden(t)[len(golden(t))-2:])
	got, _ = collect(t, quick(edge.URL).RunEvents(t.Context(), edge.RunID, runlog.EventOptions{After: 42}))
	equal(t, got, nil)
}

// The ID of an event says where to go on, and what follows is told apart from what came before.
func TestAfterID(t *testing.T) {
	for id, want := range map[string]string{"ses_1-40": "40", "ses-1-40~tkqezo": "40~tkqezo"} {
		asked := make(chan string, 1)
		edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.Header.Get("Last-Event-ID")
			w.Header().Set("Content-Type", "text/event-stream")
			for _, seq := range []string{"40", "41"} {
				fmt.Fprintf(w, "id: %[1]s\nevent: custom\ndata: {\"v\":1,\"seq\":%[1]s,\"id\":\"s-%[1]s\",\"type\":\"custom\",\"time\":\"2026-01-01T00:00:00Z\",\"session_id\":\"s\",\"data\":{}}\n\n", seq)
			}
		}))
		defer edge.Close()
		got, _ := collect(t, quick(edge.URL).SessionEvents(t.Context(), "s", runlog.EventOptions{AfterID: id, NoFollow: true}))
		if at := <-asked; at != want || len(got) != 1 {
			t.Errorf("after %s: asked for what follows %q, got %v", id, at, got)
		}
	}
}

func TestNoFollowEndsAtTheHead(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t)[:20])
	got, _ := collect(t, quick(edge.URL).RunEvents(t.Context(), edge.RunID, runlog.EventOptions{NoFollow: true}))
	equal(t, got, golden(t)[:19])
}

func TestSnapshotThenTail(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	edge.Snapshot = json.RawMessage(`{"v":1,"seq":30,"session_id":"ses_01k9example"}`)
	edge.Fault = func(n int, _ edgetest.Request) edgetest.Fault {
		return edgetest.Fault{Cut: n == 0}
	}
	var first event.Event
	var lines []string
	for e, err := range quick(edge.URL).RunEvents(t.Context(), edge.RunID, runlog.EventOptions{Snapshot: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if first.Type == "" {
			first = e
			continue
		}
		lines = append(lines, string(e.AppendLine(nil)))
	}
	if first.Type != runlog.Snapshot || first.Seq != 30 || first.SessionID != edge.SessionID {
		t.Fatalf("first message: %+v", first)
	}
	equal(t, lines, golden(t)[len(golden(t))-12:])
	if r := edge.Requests()[1]; r.LastEventID != "30" || strings.Contains(r.Query, "snapshot") {
		t.Errorf("reconnect asked %+v; the snapshot's seq is the cursor", r)
	}
}

// script serves fixed answers, one per connection; the last one repeats.
func script(t *testing.T, handlers ...http.HandlerFunc) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1))
		handlers[min(n, len(handlers))-1](w, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL, requests
}

// sends answers with a stream and ends it cleanly.
func sends(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}
}

const completed = `{"v":1,"seq":9,"id":"s-9","type":"run.completed","time":"2026-11-30T12:00:00Z","session_id":"s","run_id":"r","data":{}}`

// A reset replaces what the viewer has, even if it is behind its cursor; what
// may not be seen moves the cursor; unknown news is handed on.
func TestStreamOnlyMessages(t *testing.T) {
	url, _ := script(t,
		sends("id: 50\nevent: reset\ndata: {\"seq\":5,\"session_id\":\"s\"}\n\n"+
			"event: heartbeat\ndata: {\"status\":\"running\"}\n\nevent: fireworks\ndata: 1\n\nid: 8\nevent: position\ndata: {}\n\n"),
		func(w http.ResponseWriter, r *http.Request) {
			if id := r.Header.Get("Last-Event-ID"); id != "8" {
				t.Errorf("resumed after %q, want the hidden position 8", id)
			}
			sends("id: 9\nevent: run.completed\ndata: "+completed+"\n\n")(w, r)
		})
	lines, others := collect(t, quick(url).RunEvents(t.Context(), "r", runlog.EventOptions{After: 100}))
	if len(lines) != 1 || fmt.Sprint(others) != "[reset heartbeat fireworks]" {
		t.Errorf("got %d events and %v", len(lines), others)
	}
}

// A run that another run started ends without ending the stream.
func TestForeignTerminalEventIsNotTheEnd(t *testing.T) {
	child := strings.NewReplacer(`"seq":9`, `"seq":8`, `"run_id":"r"`, `"run_id":"child"`).Replace(completed)
	url, _ := script(t, sends("id: 8\nevent: run.completed\ndata: "+child+"\n\nid: 9\nevent: run.completed\ndata: "+completed+"\n\n"))
	lines, _ := collect(t, quick(url).RunEvents(t.Context(), "r", runlog.EventOptions{}))
	if len(lines) != 2 {
		t.Errorf("got %d events, want the child's end and the run's", len(lines))
	}
}

func TestSessionFollowsBeyondARun(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	edge.Fault = func(n int, _ edgetest.Request) edgetest.Fault { return edgetest.Fault{Cut: n == 0, After: 20} }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	next := edgetest.Golden(t)[41]
	next.Seq, next.ID, next.RunID = 43, "ses_01k9example-43", "run_2"
	var n int
	for e, err := range quick(edge.URL).SessionEvents(ctx, edge.SessionID, runlog.EventOptions{}) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			break
		}
		n++
		switch e.Seq {
		case 42:
			edge.Append(next)
		case 43:
			cancel()
		}
	}
	if n != 41 {
		t.Errorf("got %d events, want 41", n)
	}
}

// A connection without a byte is given up and taken up elsewhere; one with
// nothing but pings is not.
func TestSilenceReconnects(t *testing.T) {
	silent := edgetest.New(t, edgetest.Golden(t))
	silent.Fault = func(int, edgetest.Request) edgetest.Fault { return edgetest.Fault{Hang: true, After: 5} }
	alive := edgetest.New(t, edgetest.Golden(t))
	c := quick(silent.URL, alive.URL)
	c.Idle = 50 * time.Millisecond
	got, _ := collect(t, c.RunEvents(t.Context(), alive.RunID, runlog.EventOptions{}))
	equal(t, got, golden(t))
	if r := alive.Requests(); len(r) != 1 || r[0].LastEventID != "6" {
		t.Errorf("the second edge was asked %+v", r)
	}
}

func TestPingsKeepAlive(t *testing.T) {
	url, requests := script(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 30 { // 1.5 s of pings under an idle limit of 1 s
			_, _ = io.WriteString(w, ": ping\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
		_, _ = io.WriteString(w, "id: 9\nevent: run.completed\ndata: "+completed+"\n\n")
	})
	c := quick(url)
	c.Idle = time.Second
	collect(t, c.RunEvents(t.Context(), "r", runlog.EventOptions{}))
	if n := requests.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A reader that takes its time is not taken for a silent server.
func TestSlowReaderIsNotSilence(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	c := quick(edge.URL)
	c.Idle = time.Second
	for e, err := range c.RunEvents(t.Context(), edge.RunID, runlog.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 20 {
			time.Sleep(c.Idle * 3 / 2)
		}
	}
	if n := len(edge.Requests()); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A dead edge costs one quick try, and the one that serves is remembered.
func TestNextEdgeWhenOneIsDown(t *testing.T) {
	down := httptest.NewServer(nil)
	down.Close()
	draining := edgetest.New(t, edgetest.Golden(t))
	draining.Fault = func(int, edgetest.Request) edgetest.Fault {
		return edgetest.Fault{Status: 503, RetryAfter: "3600"}
	}
	up := edgetest.New(t, edgetest.Golden(t))
	c := quick(down.URL, draining.URL, up.URL)
	for range 2 {
		got, _ := collect(t, c.RunEvents(t.Context(), up.RunID, runlog.EventOptions{}))
		equal(t, got, golden(t))
	}
	if a, b := len(draining.Requests()), len(up.Requests()); a != 1 || b != 2 {
		t.Errorf("the draining edge was asked %d times, the good one %d; want 1 and 2", a, b)
	}
	if got := c.Resolve("/artifacts/art_1"); got != up.URL+"/artifacts/art_1" {
		t.Errorf("Resolve gave %s, not on the edge that served", got)
	}
}

// One edge is gone, the other one cannot yet: that is no wrong address.
func TestOneEdgeIsGoneAndTheOtherOneBusy(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	busy, requests := script(t, func(w http.ResponseWriter, _ *http.Request) {
		edgetest.Problem(w, 503, event.CodeUnavailable, "no leader")
	})
	up := edgetest.New(t, edgetest.Golden(t))
	c := quick(gone.URL, busy, busy)
	c.Patience = 300 * time.Millisecond
	if _, err := c.GetRun(t.Context(), up.RunID); err == nil || !strings.Contains(err.Error(), "gave up after") || requests.Load() < 4 {
		t.Errorf("after %d requests: %v", requests.Load(), err)
	}
	c = quick(up.URL, gone.URL)
	if _, err := c.GetRun(t.Context(), up.RunID); err != nil {
		t.Fatal(err)
	}
	up.Close() // both are gone, but the addresses were right
	c.Patience = 300 * time.Millisecond
	if _, err := c.GetRun(t.Context(), up.RunID); err == nil || !strings.Contains(err.Error(), "gave up after") {
		t.Errorf("got %v", err)
	}
}

func TestRefusalsAreFinal(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 409, 410, 422, 500} {
		url, requests := script(t, func(w http.ResponseWriter, _ *http.Request) {
			edgetest.Problem(w, status, event.CodeCursorAhead, "no such thing")
		})
		var got *runlog.Error
		for _, err := range quick(url).RunEvents(t.Context(), "r", runlog.EventOptions{}) {
			if !errors.As(err, &got) || got.Status != status || got.Code != event.CodeCursorAhead || got.Detail != "no such thing" {
				t.Errorf("%d: got %v", status, err)
			}
		}
		if got == nil || requests.Load() != 1 {
			t.Errorf("%d: %d requests, error %v", status, requests.Load(), got)
		}
	}
}

// What no other try can mend ends the stream with a reason, at once.
func TestBrokenServersAreNotRetried(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>log in</html>") }
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want string
	}{
		"a page":               {page, "is it a runlog server?"},
		"an event of no JSON":  {sends("id: 1\nevent: run.started\ndata: {\n\n"), `message "1": decode event`},
		"a later version":      {sends("id: 1\nevent: run.started\ndata: {\"v\":2,\"seq\":1}\n\n"), "this program reads version 1"},
		"an endless line":      {sends("data: " + strings.Repeat("x", 5000)), "message too long"},
		"a snapshot of no seq": {sends("id: 1\nevent: snapshot\ndata: {\"seq\":-1}\n\n"), `message "1"`},
	} {
		url, requests := script(t, c.h)
		client := quick(url)
		client.MaxMessage = 4000
		var got error
		for _, err := range client.RunEvents(t.Context(), "r", runlog.EventOptions{}) {
			got = err
		}
		if got == nil || !strings.Contains(got.Error(), c.want) || requests.Load() != 1 {
			t.Errorf("%s: %d requests, error %v, want %q", name, requests.Load(), got, c.want)
		}
		if name == "an endless line" && !errors.Is(got, sse.ErrTooLong) {
			t.Errorf("%v is no ErrTooLong", got)
		}
	}
}

// Retry-After and retry: are kept to; the hook hears of the waits.
func TestWaitsThatTheServerAsksFor(t *testing.T) {
	url, _ := script(t,
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			edgetest.Problem(w, 429, event.CodeRateLimited, "slow down")
		},
		sends("retry: 300\n\n"),
		sends("id: 9\nevent: run.completed\ndata: "+completed+"\n\n"))
	c := quick(url)
	var waits []time.Duration
	c.OnRetry = func(_ error, wait time.Duration) { waits = append(waits, wait) }
	begun := time.Now()
	collect(t, c.RunEvents(t.Context(), "r", runlog.EventOptions{}))
	if len(waits) != 2 || waits[0] < time.Second || waits[1] < 300*time.Millisecond {
		t.Errorf("waits: %v, want at least 1s and 300ms", waits)
	}
	if took := time.Since(begun); took < 1300*time.Millisecond {
		t.Errorf("took only %v", took)
	}
}

// Endless empty streams are no life: the client backs off and gives up.
func TestPatienceEnds(t *testing.T) {
	url, requests := script(t, func(w http.ResponseWriter, r *http.Request) {
		edgetest.Problem(w, 503, event.CodeUnavailable, "no log")
	})
	c := quick(url)
	c.Patience = 100 * time.Millisecond
	var got error
	for _, err := range c.RunEvents(t.Context(), "r", runlog.EventOptions{}) {
		got = err
	}
	var refusal *runlog.Error
	if !errors.As(got, &refusal) || !strings.Contains(got.Error(), "gave up after") || requests.Load() < 3 {
		t.Errorf("after %d requests: %v", requests.Load(), got)
	}
}

func TestNobodyListening(t *testing.T) {
	down := httptest.NewServer(nil)
	down.Close()
	c := quick(down.URL)
	c.OnRetry = func(cause error, _ time.Duration) { t.Errorf("tried again after %v", cause) }
	for _, err := range c.RunEvents(t.Context(), "r", runlog.EventOptions{}) {
		if err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("got %v", err)
		}
	}
}

func TestStoppingEarlyClosesTheConnection(t *testing.T) {
	closed := make(chan struct{})
	url, _ := script(t, func(w http.ResponseWriter, r *http.Request) {
		sends(string(edgetest.Encode(edgetest.Golden(t)[0])))(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(closed)
	})
	for range quick(url).RunEvents(t.Context(), "r", runlog.EventOptions{}) {
		break
	}
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection stayed open after the reader had left")
	}
}

// A submission whose answer is lost is repeated with the same key; once the run
// is known, its stream is resumed and nothing is submitted again.
func TestSubmitStream(t *testing.T) {
	for name, c := range map[string]struct {
		first edgetest.Fault
		posts int
	}{
		"no fault":                   {edgetest.Fault{}, 1},
		"refused for now":            {edgetest.Fault{Status: 503}, 2},
		"cut, named in the header":   {edgetest.Fault{Cut: true}, 1},
		"cut before it was named":    {edgetest.Fault{Cut: true, NoName: true}, 2},
		"cut when only the session":  {edgetest.Fault{Cut: true, NoName: true, After: 1}, 2},
		"cut when an event named it": {edgetest.Fault{Cut: true, NoName: true, After: 2}, 1},
	} {
		edge := edgetest.New(t, edgetest.Golden(t))
		edge.Fault = func(n int, _ edgetest.Request) edgetest.Fault {
			if n == 0 {
				return c.first
			}
			return edgetest.Fault{}
		}
		got, _ := collect(t, quick(edge.URL).SubmitStream(t.Context(), runlog.Submission{Agent: "demo", Input: "hi"}))
		equal(t, got, golden(t))
		keys := map[string]bool{}
		for _, r := range edge.Requests() {
			if r.Method == http.MethodPost {
				keys[r.IdempotencyKey] = true
			}
		}
		if n := edge.Asked(http.MethodPost, "/v1/runs"); n != c.posts || len(keys) != 1 || keys[""] {
			t.Errorf("%s: %d posts with keys %v, want %d with one", name, n, keys, c.posts)
		}
	}
}
