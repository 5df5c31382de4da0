package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// Every dialect tells every scenario live in the same bytes, whether the viewer is
// parked between events (HTTP/1.1) or has a goroutine (h2c).
func TestParkedOrNotTheBytesAreTheSame(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{Stream: stream.Options{Ping: time.Hour, Heartbeat: time.Hour}})
	one, two := http1(nil), http2(nil)
	t.Cleanup(one.CloseIdleConnections)
	t.Cleanup(two.CloseIdleConnections)
	for _, sc := range scenarios.All() {
		if sc.LogOnly {
			continue
		}
		t.Run(sc.Name, func(t *testing.T) {
			id := "run_" + sc.Name
			wantStatus(t, e.do("POST", "/v1/runs", fmt.Sprintf(`{"input":"x","run_id":%q,"session_id":%q}`, id, sc.Name)), 202)
			var parked, not []*http.Response
			for _, d := range edge.DialectNames() {
				path := e.url + "/v1/runs/" + id + "/events?dialect=" + d
				parked, not = append(parked, open(t, one, path)), append(not, open(t, two, path))
			}
			waitFor(t, func() bool { return e.srv.Parked() == len(parked) })
			w := s.scribe("default", sc.Name)
			for _, step := range sc.Steps(scenarios.Invoke{RunID: id, TraceID: "t", CommandID: id + ".invoke", Agent: "demo", Fold: event.NewSession(sc.Name),
				Messages: []event.InputMessage{{MessageID: "m", Role: event.RoleUser, Parts: []event.Part{event.TextPart("x")}}}}) {
				w.write(step.Event)
			}
			for i, d := range edge.DialectNames() {
				got, want := afterHello(t, parked[i]), afterHello(t, not[i])
				if got != want || !strings.Contains(got, "data: ") {
					t.Errorf("%s: parked\n%s\nnot parked\n%s", d, got, want)
				}
			}
		})
	}
}

func open(t testing.TB, client *http.Client, url string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 {
		t.Fatalf("%s: status %d", url, resp.StatusCode)
	}
	return resp
}

// afterHello reads a body to its proper end, without the retry that is random.
func afterHello(t testing.TB, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s: %v", resp.Request.URL, err)
	}
	_, rest, _ := strings.Cut(string(body), "\n\n")
	return rest
}

// What a stream holds is given back at its end and not before, to the byte.
func TestParkedStreamsAreAccountedFor(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	e := s.serve(edge.Options{MaxStreams: 1})
	wantStatus(t, e.do("POST", "/v1/runs", `{"input":"x","run_id":"r","session_id":"s"}`), 202)
	path := "/v1/runs/r/events"
	for round := range 3 {
		resp := e.do("GET", path, "")
		waitFor(t, func() bool { return e.srv.Parked() == 1 })
		e.get(503, path)
		if _, open := e.sample("open_streams"); open != 1 {
			t.Errorf("%v streams are open", open)
		}
		w.write(started("r"), said("r", "hello"))
		read := 0
		for rd := bufio.NewReader(resp.Body); ; {
			line, err := rd.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if read += len(line); strings.HasPrefix(line, "data:") && strings.Contains(line, fmt.Sprintf(`"seq":%d,`, 2*round+2)) {
				read += len("\n")
				break
			}
		}
		resp.Body.Close()
		waitFor(t, func() bool { return len(e.records.of(path)) == 2*round+2 })
		r := e.records.of(path)[2*round+1]
		if r["ended"] != "client" || r["bytes"] != float64(read) || r["status"] != 200.0 || r["run"] != "r" {
			t.Errorf("%d bytes were read; the record is %v", read, r)
		}
	}
	last := e.do("GET", path+"?after=6", "")
	waitFor(t, func() bool { return e.srv.Parked() == 1 })
	w.write(completed("r"))
	if _, err := io.ReadAll(last.Body); err != nil {
		t.Fatal(err)
	}
	e.get(200, "/v1/sessions/s/events?follow=false") // who has seen the end finds the place free
	if _, ended := e.sample("streams_ended_total"); ended != 5 {
		t.Errorf("%v streams have ended", ended)
	}
}

// An edge that stops aborts what is parked and does not wait for its clients.
func TestStoppingAbortsParkedStreams(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"))
	e := s.serve(edge.Options{})
	const n = 30
	all := make([]*listener, n)
	for i := range all {
		all[i] = e.listen("/v1/sessions/s/events")
		all[i].must()
	}
	waitFor(t, func() bool { return e.srv.Parked() == n })
	e.stop()
	if err := <-e.ended; err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if m, err := l.next(); err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("a stream ended with %v, %v", m, err)
		}
	}
	for _, r := range e.records.of("/v1/sessions/s/events") {
		if r["ended"] != "drain" {
			t.Errorf("the record is %v", r)
		}
	}
	if _, open := e.sample("open_streams"); open != 0 {
		t.Errorf("%v streams are open", open)
	}
}

// HTTP/1.0 has no chunks: its streams keep their goroutine.
func TestOldClientsAreNotParked(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	w.write(started("r"))
	e := s.serve(edge.Options{})
	conn := e.connect()
	fmt.Fprintf(conn, "GET /v1/sessions/s/events HTTP/1.0\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(t, resp)
	l.must()
	w.write(said("r", "x"))
	l.must()
	if n := e.srv.Parked(); n != 0 {
		t.Errorf("%d streams are parked", n)
	}
}

// After a proper end the connection serves the client's next request, as any other
// does; it does not keep the edge from stopping.
func TestTheConnectionOfAParkedStreamIsUsedAgain(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	e := s.serve(edge.Options{DrainPeriod: 4 * time.Second}) // less than what a new connection has for its first request
	conn := e.connect()
	rd := bufio.NewReader(conn)
	for _, id := range []string{"r1", "r2", "r3"} {
		body := fmt.Sprintf(`{"input":"x","run_id":%q,"session_id":"s"}`, id)
		fmt.Fprintf(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		resp, err := http.ReadResponse(rd, nil)
		if err != nil || resp.StatusCode != 200 || resp.Close {
			t.Fatalf("%s: %v, %v", id, resp, err)
		}
		waitFor(t, func() bool { return e.srv.Parked() == 1 })
		w.write(started(id), completed(id))
		if l := newListener(t, resp).rest(); len(l) != 2 {
			t.Fatalf("%s: %d messages", id, len(l))
		}
		fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if resp, err = http.ReadResponse(rd, nil); err != nil {
			t.Fatal(err)
		}
		wantBody(t, resp, `"ok"`)
	}
	// A stream that was the last thing that was asked for.
	fmt.Fprintf(conn, "GET /v1/runs/r4/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	wantStatus(t, e.do("POST", "/v1/runs", `{"input":"x","run_id":"r5","session_id":"s"}`), 202)
	if resp, err := http.ReadResponse(rd, nil); err != nil || resp.StatusCode != 404 {
		t.Fatalf("%v, %v", resp, err)
	} else {
		wantBody(t, resp, "r4")
	}
	fmt.Fprintf(conn, "GET /v1/runs/r5/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	resp, err := http.ReadResponse(rd, nil)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return e.srv.Parked() == 1 })
	w.write(started("r5"), completed("r5"))
	newListener(t, resp).rest()
	waitFor(t, func() bool { return e.srv.Parked() == 0 })
	e.stop()
	if err := <-e.ended; err != nil {
		t.Fatal(err)
	}
}

// Who asks for its connection to be closed gets the whole stream first.
func TestTheConnectionOfAParkedStreamIsClosed(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	e := s.serve(edge.Options{})
	wantStatus(t, e.do("POST", "/v1/runs", `{"input":"x","run_id":"r","session_id":"s"}`), 202)
	rd := pipeline(t, e, "GET /v1/runs/r/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(rd, nil)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return e.srv.Parked() == 1 })
	w.write(started("r"), completed("r"))
	newListener(t, resp).rest()
	if _, err := rd.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection was not closed: %v", err)
	}
}

// pipeline sends requests at once on one connection.
func pipeline(t *testing.T, e *served, requests string) *bufio.Reader {
	t.Helper()
	conn := e.connect()
	if _, err := io.WriteString(conn, requests); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(conn)
}

// Requests that a client has sent behind that for a stream are answered after it, in
// their order, whatever was read of them when the stream was parked: streams among
// them, and one whose bytes were read in part.
func TestRequestsBehindAStreamAreAnswered(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	e := s.serve(edge.Options{})
	var asked strings.Builder
	runs := []string{"r1", "r2", "r3"}
	for _, id := range runs {
		wantStatus(t, e.do("POST", "/v1/runs", fmt.Sprintf(`{"input":"x","run_id":%q,"session_id":"s"}`, id)), 202)
		fmt.Fprintf(&asked, "GET /v1/runs/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", id)
		fmt.Fprintf(&asked, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: %s\r\n\r\n", strings.Repeat("x", 3000)) // more than a reader's buffer in all
	}
	rd := pipeline(t, e, asked.String())
	for _, id := range runs {
		resp, err := http.ReadResponse(rd, nil)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		waitFor(t, func() bool { return e.srv.Parked() == 1 })
		w.write(started(id), completed(id))
		if l := newListener(t, resp).rest(); len(l) != 2 {
			t.Fatalf("%s: %d messages", id, len(l))
		}
		if resp, err = http.ReadResponse(rd, nil); err != nil {
			t.Fatalf("behind %s: %v", id, err)
		}
		wantBody(t, resp, `"ok"`)
	}
}

func wantBody(t testing.TB, resp *http.Response, part string) {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), part) {
		t.Fatalf("%s, %v", body, err)
	}
}
