package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// patience is for what happens at once on an idle machine.
const patience = 30 * time.Second

// A lotServer serves /SESSION?run=R&after=N as an edge does, from a hub that parks.
type lotServer struct {
	*httptest.Server
	hub    *Hub
	log    *eventlog.Log
	writer *eventlog.Writer
	woken  atomic.Int64
	ended  chan error // of each parked stream
	slow   heldApart  // dialect of who asks for ?slow=1
}

// parking starts a server; tune, if given, gets each connection that it accepts.
func parking(t testing.TB, opts Options, tune func(*net.TCPConn)) *lotServer {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("viewers are parked on Linux alone")
	}
	l := openLog(t)
	s := &lotServer{log: l, writer: newWriter(t, l), ended: make(chan error, 5000)}
	opts.Observe.Woken = func() { s.woken.Add(1) }
	s.hub = newHub(t, l, opts)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.hub.Run(ctx) }()
	await(t, "the hub to park", s.hub.Parks)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.handle))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if tune != nil && state == http.StateNew {
			tune(c.(*net.TCPConn))
		}
	}
	s.Start()
	t.Cleanup(func() { stop(); <-done; s.Close() })
	return s
}

func (s *lotServer) handle(w http.ResponseWriter, r *http.Request) {
	at, _ := ParsePosition(r.FormValue("after"))
	var d dialect.Dialect = native.Dialect{}
	if r.FormValue("slow") != "" {
		d = s.slow
	}
	v, err := s.hub.View(r.Context(), Request{Key: eventlog.Key{Tenant: "default", Session: r.URL.Path[1:]}, RunID: r.FormValue("run"),
		After: at, Dialect: d, Transport: NDJSON{}})
	if err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	defer v.Close()
	if _, err := v.Prepare(r.Context()); err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	w.WriteHeader(200)
	p, err := v.ServeOrPark(r.Context(), context.Background(), w)
	switch {
	case p != nil:
		p.Start(func(_ int64, err error) { s.ended <- err }, nil)
	case err != nil:
		panic(http.ErrAbortHandler)
	}
}

// await waits for a condition that needs no more than the machine's time.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

func (s *lotServer) awaitParked(t testing.TB, n int) {
	t.Helper()
	await(t, fmt.Sprint(n, " parked viewers"), func() bool { return s.sitting() == n })
}

// sitting is how many viewers have a place in a row.
func (s *lotServer) sitting() (n int) {
	s.hub.lot.mu.Lock()
	defer s.hub.lot.mu.Unlock()
	for _, p := range s.hub.lot.parked {
		p.mu.Lock()
		if p.row != nil {
			n++
		}
		p.mu.Unlock()
	}
	return n
}

// A client is one connection that reads a stream.
type client struct {
	conn *net.TCPConn
	body *bufio.Reader
	resp *http.Response
}

func (s *lotServer) dial(t testing.TB, path string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	return &client{conn: conn.(*net.TCPConn)}
}

// answer reads the header.
func (c *client) answer(t testing.TB) *client {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c.conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.resp, c.body = resp, bufio.NewReader(resp.Body)
	return c
}

// rest reads to the end.
func (c *client) rest(t testing.TB) (lines []string, err error) {
	t.Helper()
	for {
		line, err := c.body.ReadString('\n')
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, line)
	}
}

func seqOf(t testing.TB, line string) int {
	t.Helper()
	_, rest, _ := strings.Cut(line, `"seq":`)
	digits, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatalf("no seq in %.200q", line)
	}
	return n
}

// dense checks that each event from first to last came once, in order.
func dense(t testing.TB, lines []string, first, last int) {
	t.Helper()
	for i, line := range lines {
		if n := seqOf(t, line); n != first+i {
			t.Fatalf("event %d in the place of %d", n, first+i)
		}
	}
	if len(lines) != last-first+1 {
		t.Fatalf("%d events, want %d to %d", len(lines), first, last)
	}
}

// say appends n deltas of some size, and gives them time to be written singly
// only as far as the machine does.
func (s *lotServer) say(t testing.TB, n, size int) {
	t.Helper()
	for range n {
		e := event.New(event.TextDelta, event.TextDeltaData{MessageID: "m", Delta: strings.Repeat("x", size)})
		e.RunID = "r"
		if _, err := s.writer.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.writer.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Each viewer gets each event once and a proper end, however many they are; what
// they get is what a viewer with a goroutine gets.
func TestParkedViewersGetTheSameBytes(t *testing.T) {
	s := parking(t, Options{}, nil)
	write(t, s.writer, event.RunStarted)
	const viewers = rowSize + 20 // more than a row
	clients := make([]*client, viewers)
	for i := range clients {
		clients[i] = s.dial(t, "/s?run=r").answer(t)
	}
	s.awaitParked(t, viewers)
	for i := range 30 {
		s.say(t, 1+i%5, 1+i*100)
	}
	write(t, s.writer, event.RunCompleted)
	want := strings.SplitAfter(serve(t, s.hub, Request{RunID: "r"}), "\n")
	want = want[:len(want)-1]
	for i, c := range clients {
		got, err := c.rest(t)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("viewer %d got %d lines of %d, %v", i, len(got), len(want), err)
		}
		if err := <-s.ended; err != nil {
			t.Errorf("a stream ended with %v", err)
		}
	}
	await(t, "everybody to leave", func() bool { return s.hub.Parked() == 0 })
	if n := viewersOf(s.hub); n != 0 {
		t.Errorf("%d viewers are counted where there are none", n)
	}
}

type heldApart struct{ held }

func (heldApart) Name() string { return "held" }

// News come while one dialect's encoding holds a flusher: the others' go on.
func TestNoDialectSlowsAnothersParkedViewers(t *testing.T) {
	s := parking(t, Options{}, nil)
	write(t, s.writer, event.RunStarted)
	s.slow.held = held{entered: make(chan struct{}, 1), release: make(chan struct{})}
	release := sync.OnceFunc(func() { close(s.slow.release) })
	defer release()
	late := s.dial(t, "/s?run=r&after=1&slow=1").answer(t)
	var quick []*client
	for range 20 {
		quick = append(quick, s.dial(t, "/s?run=r&after=1").answer(t))
	}
	s.awaitParked(t, 21)
	write(t, s.writer, event.TextDelta)
	<-s.slow.entered
	write(t, s.writer, event.TextDelta, event.RunCompleted)
	for _, c := range quick {
		lines, err := c.rest(t)
		if err != nil {
			t.Fatal(err)
		}
		dense(t, lines, 2, 4)
	}
	release()
	lines, err := late.rest(t)
	if err != nil {
		t.Fatal(err)
	}
	dense(t, lines, 2, 4)
}

func viewersOf(h *Hub) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, t := range h.topics {
		n += t.viewers
	}
	return n
}

// The socket takes a part of what is written, or nothing: what is left goes first.
func TestHalfWrittenIsContinued(t *testing.T) {
	s := parking(t, Options{}, func(c *net.TCPConn) { _ = c.SetWriteBuffer(16 << 10) })
	write(t, s.writer, event.RunStarted)
	c := s.dial(t, "/s?run=r")
	_ = c.conn.SetReadBuffer(32 << 10)
	c.answer(t)
	s.awaitParked(t, 1)
	const rounds, each = 4, 60
	var got []string
	for round := range rounds {
		s.say(t, each, 3000+round*311) // more than the sockets take
		await(t, "the viewer to be woken", func() bool { return s.woken.Load() > int64(round) })
		for len(got) < 1+(round+1)*each {
			line, err := c.body.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, line)
		}
		s.awaitParked(t, 1)
	}
	write(t, s.writer, event.RunCompleted)
	last, err := c.rest(t)
	if err != nil {
		t.Fatal(err)
	}
	dense(t, append(got, last...), 1, rounds*each+2)
}

// stall parks the first client of the run r, which reads no more, and says more than its socket takes.
func (s *lotServer) stall(t testing.TB) *client {
	t.Helper()
	write(t, s.writer, event.RunStarted)
	c := s.dial(t, "/s?run=r")
	_ = c.conn.SetReadBuffer(8 << 10)
	c.answer(t)
	s.awaitParked(t, 1)
	s.say(t, 100, 10_000)
	return c
}

// Who stops reading is cut off, and finds the rest where it was.
func TestParkedReaderThatStopsReading(t *testing.T) {
	s := parking(t, Options{WriteTimeout: time.Second}, func(c *net.TCPConn) { _ = c.SetWriteBuffer(8 << 10) })
	c := s.stall(t)
	if err := <-s.ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the stream ended with %v", err)
	}
	lines, err := c.rest(t)
	if err == nil {
		t.Error("what was cut off ended properly")
	}
	write(t, s.writer, event.RunCompleted)
	again, err := s.dial(t, fmt.Sprintf("/s?run=r&after=%d", len(lines))).answer(t).rest(t)
	if err != nil {
		t.Fatal(err)
	}
	dense(t, append(lines, again...), 1, 102)
}

// Who stops reading is waited for as long as there is memory for that.
func TestParkedReadersAreNotWaitedForWithoutMemory(t *testing.T) {
	s := parking(t, Options{WriteTimeout: time.Hour, Ledger: room.NewLedger(), Budget: room.Budget{Requests: 1}}, func(c *net.TCPConn) { _ = c.SetWriteBuffer(8 << 10) })
	c := s.stall(t)
	if err := <-s.ended; !errors.Is(err, errNoPatience) {
		t.Fatalf("the stream ended with %v", err)
	}
	if _, err := c.rest(t); err == nil {
		t.Error("what was cut off ended properly")
	}
}

// A client that leaves frees what it has at once, however it goes.
func TestClientsThatLeaveAreNoticed(t *testing.T) {
	s := parking(t, Options{Ping: time.Hour, Heartbeat: time.Hour}, nil)
	write(t, s.writer, event.RunStarted)
	stays := s.dial(t, "/s?run=r").answer(t)
	for name, leave := range map[string]func(*net.TCPConn) error{
		"close":      (*net.TCPConn).Close,
		"reset":      func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() },
		"half close": (*net.TCPConn).CloseWrite,
	} {
		c := s.dial(t, "/s?run=r").answer(t)
		s.awaitParked(t, 2)
		if err := leave(c.conn); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-s.ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the stream ended with %v", name, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: nobody has noticed", name)
		}
		await(t, "the place to be free", func() bool { return viewersOf(s.hub) == 1 && s.hub.Parked() == 1 })
	}
	write(t, s.writer, event.RunCompleted)
	if lines, err := stays.rest(t); err != nil || len(lines) != 2 {
		t.Errorf("the one that stays got %d lines, %v", len(lines), err)
	}
}

// What a client sends while it reads is not looked at, and harms nobody.
func TestWhatParkedClientsSendIsIgnored(t *testing.T) {
	s := parking(t, Options{}, nil)
	write(t, s.writer, event.RunStarted)
	c := s.dial(t, "/s?run=r").answer(t)
	s.awaitParked(t, 1)
	fmt.Fprintf(c.conn, "GET /other HTTP/1.1\r\nHost: test\r\n\r\n")
	s.say(t, 20, 100)
	write(t, s.writer, event.RunCompleted)
	lines, err := c.rest(t)
	if err != nil {
		t.Fatal(err)
	}
	dense(t, lines, 1, 22)
}

// Drained, every stream is aborted, none ends politely: those that sit, those
// whose clients do not read, and those that come too late.
func TestDrainFindsParkedViewers(t *testing.T) {
	s := parking(t, Options{}, func(c *net.TCPConn) { _ = c.SetWriteBuffer(8 << 10) })
	slow := s.stall(t)
	await(t, "the slow one to be woken", func() bool { return s.sitting() == 0 })
	const n = 20
	clients := []*client{slow}
	for range n {
		clients = append(clients, s.dial(t, "/s?run=r&after=101").answer(t))
	}
	s.awaitParked(t, n)
	cause := errors.New("drained")
	s.hub.Abort(cause, func(end func()) { end() })
	late := s.dial(t, "/s?run=r&after=101").answer(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range n + 2 {
		select {
		case err := <-s.ended:
			if !errors.Is(err, cause) {
				t.Errorf("a stream ended with %v", err)
			}
		case <-ctx.Done():
			t.Fatal("not all streams have ended")
		}
	}
	if err := s.hub.AwaitParked(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(clients, late) {
		if _, err := c.rest(t); err == nil {
			t.Error("a stream that was drained ended properly")
		}
	}
}

// Viewers cost no goroutine, and are pinged all the same.
func TestParkedViewersHaveNoGoroutine(t *testing.T) {
	s := parking(t, Options{Ping: 50 * time.Millisecond}, nil)
	write(t, s.writer, event.RunStarted)
	first := s.dial(t, "/s").answer(t)
	s.awaitParked(t, 1)
	before := runtime.NumGoroutine()
	const n = 500
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = s.dial(t, "/s").answer(t)
	}
	await(t, "goroutines to end", func() bool { return s.hub.Parked() == n+1 && runtime.NumGoroutine() <= before+20 })
	for _, c := range append(clients, first) {
		for pings := 0; pings < 2; {
			line, err := c.body.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, `"ping"`) {
				pings++
			}
		}
	}
}

// The topics break off under a thousand viewers: each goes on in a new one, and
// sits down again.
func TestParkedViewersRejoin(t *testing.T) {
	s := parking(t, Options{}, nil)
	const sessions, each = 50, 20
	writers := make([]*eventlog.Writer, sessions)
	var clients []*client
	for i := range writers {
		name := fmt.Sprint("s", i)
		writers[i] = s.log.Writer(eventlog.Key{Tenant: "default", Session: name}, eventlog.Head{})
		defer writers[i].Close()
		write(t, writers[i], event.RunStarted)
		for range each {
			clients = append(clients, s.dial(t, "/"+name+"?run=r").answer(t))
		}
	}
	s.awaitParked(t, sessions*each)
	for _, topic := range topicsOf(s.hub) {
		topic.Broken(eventlog.ErrGone)
	}
	for _, w := range writers {
		write(t, w, event.TextDelta)
	}
	s.awaitParked(t, sessions*each)
	for _, w := range writers {
		write(t, w, event.RunCompleted)
	}
	for _, c := range clients {
		lines, err := c.rest(t)
		if err != nil {
			t.Fatal(err)
		}
		dense(t, lines, 1, 3)
	}
	if n := s.woken.Load(); n < sessions*each {
		t.Errorf("only %d viewers have moved", n)
	}
}

func topicsOf(h *Hub) (all []*topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		all = append(all, t)
	}
	return all
}

func TestChunks(t *testing.T) {
	for _, size := range []int{1, 15, 16, 255, 4096, 1 << 20} {
		data := strings.Repeat("a", size)
		got := string(chunk([]byte(chunkHead + data + "\r\n")))
		if want := strconv.FormatInt(int64(size), 16) + "\r\n" + data + "\r\n"; got != want {
			t.Errorf("a chunk of %d begins %.20q", size, got)
		}
	}
}

// A meddled connection has something happen before the first time that a write is given.
type meddled struct {
	net.Conn
	given   atomic.Bool
	happens func()
	set     chan struct{} // gets each later time that is set
}

func (c *meddled) SetWriteDeadline(at time.Time) error {
	first := !c.given.Swap(true)
	if first {
		c.happens()
		<-c.set
	}
	err := c.Conn.SetWriteDeadline(at)
	if !first {
		select {
		case c.set <- struct{}{}:
		case <-time.After(10 * time.Millisecond):
		}
	}
	return err
}

// A stream that has to end just when a client that reads nothing is given its time for a write does not wait that long.
func TestAnEndThatMeetsAWriteIsNotForgotten(t *testing.T) {
	l := openLog(t)
	h := newHub(t, l, Options{WriteTimeout: 20 * time.Second})
	fill(t, l, said("x"))
	v, err := h.View(t.Context(), Request{Key: key, Dialect: native.Dialect{}, Transport: NDJSON{}})
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	defer there.Close()
	why, ended := errors.New("drained"), make(chan error, 1)
	p := &Parked{v: v, unsent: []byte("x"), over: func(_ int64, err error) { ended <- err }}
	p.conn = &meddled{Conn: here, set: make(chan struct{}), happens: func() { p.leave(why) }}
	go p.run()
	select {
	case err := <-ended:
		if !errors.Is(err, why) {
			t.Error(err)
		}
	case <-time.After(15 * time.Second):
		t.Error("the write was given all of its time")
		there.Close()
		<-ended
	}
}

// A client that does not take the end of its stream does not hold up a drain that begins then, or before.
func TestAnEndThatNobodyTakesHoldsUpNoDrain(t *testing.T) {
	l := openLog(t)
	h := newHub(t, l, Options{WriteTimeout: time.Hour})
	fill(t, l, said("x"))
	for _, early := range []bool{true, false} {
		v, err := h.View(t.Context(), Request{Key: key, Dialect: native.Dialect{}, Transport: NDJSON{}})
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		defer there.Close()
		began, gone := make(chan struct{}), make(chan struct{})
		p := &Parked{v: v, conn: here, over: func(int64, error) { close(began) }}
		if early {
			p.leave(errors.New("drained"))
		}
		go func() { defer close(gone); p.end(nil) }()
		<-began
		p.leave(errors.New("drained"))
		select {
		case <-gone:
		case <-time.After(patience):
			t.Fatalf("early %t: the end of the body was given all of its time", early)
		}
	}
}
