package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/runlog-dev/runlog/edge"
)

// A stream that begins while its edge shuts down is aborted, and its header does not
// say that the connection closes: where it says so, some clients (fetch of Node.js)
// take what was aborted for whole.
func TestAbortedStreamsDoNotSayClose(t *testing.T) {
	s := newSite(t)
	const streams = 60
	for i := range streams { // each is read from the log: that takes a moment
		s.scribe("default", fmt.Sprint("s", i)).write(started("r"), said("r", strings.Repeat("word ", 2000)))
	}
	begun, refused := 0, 0
	for range 6 {
		for _, answer := range s.stopUnder(t, streams) {
			header, body, whole := strings.Cut(answer, "\r\n\r\n")
			if !whole || !strings.HasPrefix(header, "HTTP/1.1 200") {
				refused++
				continue
			}
			begun++
			if strings.HasSuffix(body, "\r\n0\r\n\r\n") {
				t.Errorf("an aborted stream looks whole: %q", answer)
			}
			if strings.Contains(strings.ToLower(header), "connection: close") {
				t.Errorf("an aborted stream says close: %q", answer)
			}
		}
	}
	t.Logf("%d streams began, %d did not", begun, refused)
	if begun == 0 {
		t.Error("no stream began")
	}
}

// stopUnder stops an edge as soon as one of n streams has begun, and returns what
// each was answered.
func (s *site) stopUnder(t *testing.T, n int) []string {
	t.Helper()
	e := s.serve(edge.Options{DrainRate: 1 << 20})
	answers := make([]string, n)
	began := make(chan struct{}, n)
	var all sync.WaitGroup
	for i := range n {
		conn := e.connect()
		all.Go(func() {
			if _, err := io.WriteString(conn, fmt.Sprintf("GET /v1/sessions/s%d/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n", i)); err != nil {
				return
			}
			r := bufio.NewReader(conn)
			_, _ = r.Peek(1)
			began <- struct{}{}
			answer, _ := io.ReadAll(r)
			answers[i] = string(answer)
		})
	}
	<-began
	e.stop()
	all.Wait()
	if err := <-e.ended; err != nil {
		t.Error(err)
	}
	return answers
}
