package deploy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// waysToReadAll are requests whose answers are the whole conversation "long", or its run.
var waysToReadAll = []string{
	"/v1/sessions/long/snapshot",
	"/v1/sessions/long/messages?format=openai",
	"/v1/sessions/long/events?snapshot=1",
	"/v1/stream?session=long&snapshot=1",
	"/langgraph/threads/long/state",
	"/v1/responses/run-long",
	"/v1/responses/run-long?stream=true",
}

// Conversations of megabytes, however many ask for them at once and however slowly they read, do not use up the memory
// of an edge, which is measured as the kernel counts it: those that are too many are told so, who asks for little is
// answered meanwhile, and who has gone leaves room.
func TestConversationsDoNotUseUpMemory(t *testing.T) {
	const memory, each = 96 << 20, 10
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), fmt.Sprintf("RUNLOG_MEMORY=%d", memory), "RUNLOG_MEMORY=0")
	f.longConversation(t, 5<<20)
	if _, err := f.scribe(t.Context(), "short", "run-short"); err != nil {
		t.Fatal(err)
	}
	url, edge := "http://"+f.addrs[0], f.edges[0].PID()
	before, stop := resident(t, edge), watchResident(t, edge)
	slow := askSlowly(t, f.addrs[0], slices.Repeat(waysToReadAll, each))
	ask := func(path string) int {
		resp, _, err := send(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		return resp.StatusCode
	}
	for _, path := range []string{"/v1/sessions/short/snapshot", "/v1/sessions/long"} {
		if status := ask(path); status != http.StatusOK {
			t.Errorf("%s meanwhile: %d", path, status)
		}
	}
	taken := 0
	for _, a := range slow {
		if a.StatusCode == http.StatusOK {
			taken++
			continue
		}
		if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" || !strings.Contains(a.body, "overloaded") {
			t.Errorf("%s: %s %s", a.path, a.Status, a.body)
		}
	}
	if taken == 0 || taken == len(slow) {
		t.Errorf("%d of %d were answered", taken, len(slow))
	}
	for _, a := range slow {
		a.conn.Close()
	}
	for deadline := time.Now().Add(patience); ask(waysToReadAll[0]) != http.StatusOK; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("all have gone, and there is still no room")
		}
	}
	peak := stop()
	t.Logf("%d of %d were answered; %d MiB before, %d MiB at most", taken, len(slow), before>>20, peak>>20)
	if peak > memory+memory/8 { // what the collector cannot keep below the ceiling is little
		t.Errorf("the edge takes %d MiB of %d", peak>>20, memory>>20)
	}
}

// longConversation writes the session "long", with one run that has said so many bytes, and keeps its fold as workers do.
func (f *front) longConversation(t *testing.T, size int) {
	t.Helper()
	ctx := t.Context()
	ref, _, err := f.log.Reserve(ctx, "default", "", eventlog.RunRef{RunID: "run-long", SessionID: "long", TraceID: "trace-run-long", Agent: "demo"})
	if err == nil {
		err = f.log.Accept(ctx, ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.scribe(ctx, "long", "run-long")
	text := strings.Repeat("All work and no play makes Jack a dull boy. ", 5000)
	for said := 0; said < size && err == nil; said += len(text) {
		id := fmt.Sprint("m", said)
		if err = s.write(ctx, event.TextDelta, event.TextDeltaData{MessageID: id, Delta: text}); err == nil {
			err = s.write(ctx, event.MessageCompleted, event.MessageCompletedData{MessageID: id, Role: event.RoleAssistant, Parts: []event.Part{{Type: event.PartText, Text: text}}})
		}
	}
	if err == nil {
		err = s.write(ctx, event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop})
	}
	if err != nil {
		t.Fatal(err)
	}
	k := eventlog.Key{Tenant: "default", Session: "long"}
	fold, head, err := f.log.Load(ctx, k)
	if err == nil {
		err = f.log.SaveSnapshot(ctx, k, fold.Encode(), head.Seq)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A slowAnswer is one of which its client has read the header, and the rest if it is a refusal.
type slowAnswer struct {
	*http.Response
	path, body string
	conn       net.Conn
}

// askSlowly asks for all of the paths at once.
func askSlowly(t *testing.T, addr string, paths []string) []slowAnswer {
	t.Helper()
	answers := make([]slowAnswer, len(paths))
	var all errgroup.Group
	for i, path := range paths {
		all.Go(func() (err error) {
			answers[i], err = askOneSlowly(addr, path)
			return err
		})
	}
	err := all.Wait()
	for _, a := range answers {
		if a.conn != nil {
			t.Cleanup(func() { a.conn.Close() })
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

func askOneSlowly(addr, path string) (slowAnswer, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return slowAnswer{}, err
	}
	a := slowAnswer{path: path, conn: conn}
	_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	if a.Response, err = http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		return a, fmt.Errorf("%s: %w", path, err)
	}
	if a.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(a.Body)
		a.body = string(body)
	}
	return a, nil
}

// watchResident follows what a process takes until it is stopped, and says how much that was at most.
func watchResident(t *testing.T, pid int) (stop func() int64) {
	done, peak := make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, resident(t, pid))
			select {
			case <-tick.C:
			case <-done:
				peak <- most
				return
			}
		}
	}()
	return func() int64 { close(done); return <-peak }
}
