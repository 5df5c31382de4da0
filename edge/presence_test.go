package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
)

// half sends a request as printf … | nc -N does: the client's side is closed right
// behind it, and what it reads is the answer.
func (e *edgeNode) half(method, path, body string, headers ...string) (status int, answer string) {
	e.t.Helper()
	conn := e.connect()
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", method, path, len(body), strings.Join(headers, ""), body)
	_ = conn.CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// A client that closes its side after its request is answered as any other one is.
func TestAHalfClosedRequestIsAnswered(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.work()
	for i := range 20 {
		id := fmt.Sprintf("r%d", i)
		if status, answer := e.half("POST", "/v1/runs", `{"input":"hi","run_id":"`+id+`"}`); status != 202 {
			t.Fatalf("%s: %d %s", id, status, answer)
		}
		if cmd := <-w.invokes; cmd.RunID != id {
			t.Fatalf("%s was asked for, %s came", id, cmd.RunID)
		}
	}
	// Who waits gets the answer of one whose time is over.
	if status, answer := e.half("POST", "/v1/runs?wait=4m", `{"input":"hold","run_id":"h","session_id":"s"}`); status != 202 || !strings.Contains(answer, `"run_id":"h"`) {
		t.Errorf("a wait: %d %s", status, answer)
	}
	<-w.invokes
	for st := event.Status(""); st != event.Running; st = as[run](t, e.get(200, "/v1/runs/h")).Status {
	}
	if status, answer := e.half("GET", "/v1/runs/h/events?follow=false", ""); status != 200 || !strings.Contains(answer, "run.status") {
		t.Errorf("a history: %d %s", status, answer)
	}
	if status, answer := e.half("POST", "/v1/runs/h/cancel", ""); status != 202 && status != 200 {
		t.Errorf("a cancel: %d %s", status, answer)
	}
	// A stream has to be followed; its run is accepted and goes on.
	if status, answer := e.half("POST", "/v1/runs", `{"input":"hold","run_id":"f"}`, "Accept: text/event-stream\r\n"); status != 200 {
		t.Errorf("a stream: %d %s", status, answer)
	}
	if cmd := <-w.invokes; cmd.RunID != "f" {
		t.Errorf("%s came", cmd.RunID)
	}
}
