package edge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// A caller is a WebSocket that asks for things.
type caller struct {
	t    testing.TB
	conn *websocket.Conn
}

func (e *edgeNode) dial(path string, opts websocket.DialOptions) *caller {
	e.t.Helper()
	if opts.Subprotocols == nil {
		opts.Subprotocols = []string{"runlog.v1"}
	}
	conn, _, err := websocket.Dial(context.Background(), e.url+path, &opts)
	if err != nil {
		e.t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	e.t.Cleanup(func() { conn.CloseNow() })
	return &caller{e.t, conn}
}

func (c *caller) say(text string) {
	c.t.Helper()
	if err := c.conn.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// A socketMessage is anything the server says.
type socketMessage struct {
	ID         string          `json:"id"`
	Event      string          `json:"event"`
	Data       json.RawMessage `json:"data"`
	Answer     string          `json:"answer"`
	Status     int             `json:"status"`
	RetryAfter int             `json:"retry_after"`
	Body       json.RawMessage `json:"body"`
	Error      *problem        `json:"error"`
}

func (c *caller) hear() (socketMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, raw, err := c.conn.Read(ctx)
	if err != nil {
		return socketMessage{}, err
	}
	return as[socketMessage](c.t, raw), nil
}

// until skips to a message.
func (c *caller) until(ok func(socketMessage) bool) socketMessage {
	c.t.Helper()
	for {
		m, err := c.hear()
		if err != nil {
			c.t.Fatal(err)
		}
		if ok(m) {
			return m
		}
	}
}

// ask sends a command and returns its answer.
func (c *caller) ask(id, rest string) socketMessage {
	c.t.Helper()
	c.say(`{"id":"` + id + `",` + rest + `}`)
	return c.until(func(m socketMessage) bool { return m.Answer == id })
}

// closed reads to the close code.
func (c *caller) closed() websocket.StatusCode {
	c.t.Helper()
	for {
		if _, err := c.hear(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// What routes do, a socket does beside its stream.
func TestCommandsOverASocket(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.settling()
	c := e.dial("/v1/sessions/ses_settle/events?after=0", websocket.DialOptions{})
	if c.conn.Subprotocol() != "runlog.v1" {
		t.Errorf("subprotocol %q", c.conn.Subprotocol())
	}
	for i, test := range []struct {
		rest   string
		status int
	}{
		{`"do":"approve","run_id":"run_w","call_id":"asked"`, 200},
		{`"do":"deny","run_id":"run_w","call_id":"asked","body":{"reason":"no"}`, 409},
		{`"do":"approve","run_id":"run_w","call_id":"ask","body":{"args_sha256":"00"}`, 409},
		{`"do":"approve","run_id":"run_w","call_id":"none"`, 404},
		{`"do":"approve","run_id":"run_w","call_id":"ask","body":{"more":1}`, 400},
		{`"do":"tool_result","run_id":"run_w","call_id":"given","body":{"content":"a"}`, 200},
		{`"do":"tool_result","run_id":"run_w","call_id":"given","body":{"content":"b"}`, 409},
		{`"do":"steer","run_id":"run_w","body":{"input":"and this"},"idempotency_key":"k"`, 202},
		{`"do":"steer","run_id":"run_w","body":{"input":"and this"},"idempotency_key":"k"`, 202},
		{`"do":"steer","run_id":"run_w"`, 400},
		{`"do":"stop","run_id":"run_f"`, 200},
		{`"do":"cancel","run_id":"run_f","body":{"reason":"x"}`, 200},
		{`"do":"cancel","run_id":"none"`, 404},
		{`"do":"cancel"`, 404}, // a session's socket has no run of its own
		{`"do":"dance","run_id":"run_w"`, 400},
		{`"do":"cancel","when":"now"`, 400},
		{`"after":"7"`, 400}, // it has begun
	} {
		id := "c" + string(rune('a'+i))
		if m := c.ask(id, test.rest); m.Status != test.status {
			t.Errorf("%s: status %d, want %d: %s", test.rest, m.Status, test.status, m.Body)
		}
	}
	if m := c.ask("", `"do":"cancel"`); m.Status != 400 {
		t.Errorf("a command without id: %+v", m)
	}
	waiting, err := s.log.Inbox(t.Context(), s.scribe("default", "ses_settle").k)
	if err != nil || len(waiting) != 1 {
		t.Errorf("the inbox holds %+v, %v", waiting, err)
	}
}

// A run is cancelled over the socket that shows it; its end comes as an event and
// as the answer, and the socket ends as the stream does.
func TestCancelOverARunsSocket(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	r := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"hold"}`), 202))
	c := e.dial("/v1/runs/"+r.RunID+"/events", websocket.DialOptions{})
	c.say(`{"after":0,"catchup":"merged"}`)
	c.until(func(m socketMessage) bool { return m.Event == "run.started" })
	c.say(`{"id":"1","do":"cancel","body":{"reason":"enough","wait":true}}`)
	ended, answered := false, false
	for !ended || !answered {
		m, err := c.hear()
		if err != nil {
			t.Fatal(err)
		}
		ended = ended || m.Event == "run.cancelled"
		if m.Answer == "1" {
			answered = true
			if st := as[run](t, m.Body); m.Status != 200 || st.Status != event.Cancelled {
				t.Errorf("%+v %s", m, m.Body)
			}
		}
	}
	if code := c.closed(); code != websocket.StatusNormalClosure {
		t.Errorf("closed with %d", code)
	}
}

// However a client says who it is, and whatever it does wrong, it is told so by a
// code.
// Who nearly asks for a WebSocket is told what is missing, as a problem like any other.
func TestNearlyAHandshake(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", "s").write(started("r"))
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	for status, header := range map[int][]string{
		426: {"Upgrade", "websocket"},
		400: {"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "12", "Sec-WebSocket-Key", key},
	} {
		resp := e.do("GET", "/v1/sessions/s/events", "", header...)
		p := as[problem](t, wantStatus(t, resp, status))
		if p.Code != "bad_request" || !strings.Contains(p.Detail, "Sec-WebSocket-Key") || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%v: %v %+v", header, resp.Header, p)
		}
	}
}

func TestSocketCredentialsAndCloseCodes(t *testing.T) {
	s := newSite(t)
	key := s.key("a")
	e := s.edge(edge.Options{Origins: []string{"https://app.example"}})
	s.scribe("a", "s").write(started("r"))
	secret := strings.TrimPrefix(key, "Bearer ")
	first := `{"after":"0"}`
	for _, test := range []struct {
		name, path, first string
		opts              websocket.DialOptions
		code              int // 0: it streams
	}{
		{"header", "/v1/sessions/s/events", first, websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {key}}}, 0},
		{"header and query", "/v1/sessions/s/events?after=0", "", websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {key}}}, 0},
		{"subprotocol", "/v1/sessions/s/events", first, websocket.DialOptions{Subprotocols: []string{"runlog.v1", "bearer." + secret}}, 0},
		{"first message", "/v1/sessions/s/events", `{"token":"` + secret + `"}`, websocket.DialOptions{}, 0},
		{"first message and query", "/v1/sessions/s/events?after=0", `{"token":"` + secret + `"}`, websocket.DialOptions{}, 0},
		{"page elsewhere", "/v1/sessions/s/events", `{"token":"` + secret + `"}`, websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://app.example"}}}, 0},
		{"nothing", "/v1/sessions/s/events", first, websocket.DialOptions{}, 4401},
		{"guess", "/v1/sessions/s/events", `{"token":"rl_guess"}`, websocket.DialOptions{}, 4401},
		{"guess as subprotocol", "/v1/sessions/s/events", "", websocket.DialOptions{Subprotocols: []string{"bearer.rlt_x.y", "runlog.v1"}}, 4401},
		{"no such session", "/v1/sessions/none/events", `{"token":"` + secret + `"}`, websocket.DialOptions{}, 4404},
		{"ahead", "/v1/sessions/s/events", `{"token":"` + secret + `","after":99}`, websocket.DialOptions{}, 4409},
		{"bad cursor", "/v1/sessions/s/events", `{"token":"` + secret + `","after":"x"}`, websocket.DialOptions{}, 4400},
		{"a number that is not whole", "/v1/sessions/s/events", `{"token":"` + secret + `","after":1.0}`, websocket.DialOptions{}, 4400},
		{"an escaped cursor", "/v1/sessions/s/events", `{"token":"` + secret + `","after":"\u0030"}`, websocket.DialOptions{}, 0},
		{"internal", "/v1/sessions/s/events", `{"token":"` + secret + `","include":"internal"}`, websocket.DialOptions{}, 4403},
		{"no JSON", "/v1/sessions/s/events", `hello`, websocket.DialOptions{}, 4400},
		{"unknown member", "/v1/sessions/s/events", `{"token":"` + secret + `","since":1}`, websocket.DialOptions{}, 4400},
		{"too large", "/v1/sessions/s/events", strings.Repeat(" ", 4<<20), websocket.DialOptions{}, 1009},
	} {
		c := e.dial(test.path, test.opts)
		if test.first != "" {
			c.say(test.first)
		}
		m, err := c.hear()
		if test.code == 0 {
			if err != nil || m.Event != "run.started" || m.ID != "1" {
				t.Errorf("%s: %+v %v", test.name, m, err)
			}
			continue
		}
		if err == nil && m.Error != nil && m.Error.Status+4000 == test.code {
			_, err = c.hear()
		}
		if got := int(websocket.CloseStatus(err)); got != test.code {
			t.Errorf("%s: closed with %d (%v), want %d", test.name, got, err, test.code)
		}
	}
	c := e.dial("/v1/sessions/s/events", websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {key}}})
	if err := c.conn.Write(t.Context(), websocket.MessageBinary, []byte(first)); err != nil {
		t.Fatal(err)
	}
	if code := c.closed(); code != websocket.StatusUnsupportedData {
		t.Errorf("a binary message: %d", code)
	}
}

// A client that announces a message of a terabyte, and then sends no more of it than
// is refused, holds its connection for a moment.
func TestSocketThatNeverEndsItsMessage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", "s").write(started("r"))
	conn := e.connect()
	const header, mask = "\x81\xff\x00\x00\x01\x00\x00\x00\x00\x00", "\x00\x00\x00\x00" // a text of 1<<40 bytes
	if _, err := io.WriteString(conn, rawHandshake("/v1/sessions/s/events")+header+mask+strings.Repeat(" ", 300<<10)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
	if !strings.Contains(string(answer), "\x03\xf1") {
		t.Errorf("there is no close code 1009 in %q", answer)
	}
}

// A page of another origin cannot connect to an edge that needs no key.
func TestSocketOrigin(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", "s").write(started("r"))
	for origin, status := range map[string]int{"https://evil.example": 403, "http://localhost:3000": 101, e.url: 101} {
		conn, resp, err := websocket.Dial(t.Context(), e.url+"/v1/sessions/s/events?after=0", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		if err == nil {
			conn.CloseNow()
		}
		if resp == nil || resp.StatusCode != status {
			t.Errorf("%s: %v %v, want %d", origin, resp, err, status)
		}
	}
}

// A client that is gone without a word is noticed by its silence, one that closes
// at once; nothing is left of either.
func TestSocketsThatAreLeft(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{SocketPing: 50 * time.Millisecond, Stream: stream.Options{WriteTimeout: time.Second}})
	s.scribe("default", "s").write(started("r"))
	open := func() *caller {
		c := e.dial("/v1/sessions/s/events?after=0", websocket.DialOptions{})
		if _, err := c.hear(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	silent := open() // does not read, so it answers no ping
	alive := open()
	left := open()
	_ = left.conn.Close(websocket.StatusGoingAway, "")
	aborted := open()
	_ = aborted.conn.CloseNow()
	heard := make(chan socketMessage, 1)
	go func() {
		if m, err := alive.hear(); err == nil { // answers pings meanwhile
			heard <- m
		}
		close(heard)
	}()
	waitFor(t, func() bool { _, n := e.sample("open_streams"); return n == 1 })
	s.scribe("default", "s").write(said("r", "still there"))
	if m := <-heard; m.Event != "text.delta" {
		t.Errorf("the one that answers: %+v", m)
	}
	_ = silent
	e.stop()
	if err := <-e.ended; err != nil {
		t.Error(err)
	}
}

// A client that is gone without a word, and so will not say goodbye, does not hold up an
// edge that stops, whether its stream is broken off by that or was over before.
func TestSocketsOfTheDeadDoNotHoldUpADrain(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{DrainPeriod: 20 * time.Second})
	s.scribe("default", "s").write(started("r"), completed("r"))
	s.index("r", "s")
	_, addr, _ := strings.Cut(e.url, "//")
	for path, last := range map[string]string{
		"/v1/sessions/s/events?after=0": "run.completed",
		"/v1/runs/r/events?after=0":     "\x03\xe8over", // closed with 1000
		"/v1/runs/none/events?after=0":  "\x114not_found",
	} {
		conn := dialSmall(t, addr)
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, rawHandshake(path))
		var got []byte
		for b := make([]byte, 4096); !bytes.Contains(got, []byte(last)); {
			n, err := conn.Read(b)
			if got = append(got, b[:n]...); err != nil {
				t.Fatalf("%s: %q %v", path, got, err)
			}
		}
	}
	began := time.Now()
	e.stop()
	if err := <-e.ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 4500*time.Millisecond { // those who do say goodbye have 5 s for it
		t.Errorf("it took %s to stop", took)
	}
}
