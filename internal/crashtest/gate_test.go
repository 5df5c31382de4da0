package crashtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// A write is one message that a worker publishes to be stored.
type write struct {
	subject string
	events  []event.Event // of a frame
	session string        // whose ticket is deleted
}

// A moment is when a trap springs.
type moment string

const (
	before moment = "before" // it is stored: the server never gets it, or gets it late
	stored moment = "stored" // but nobody has told the worker
)

// A trap waits for a certain write, stops all that flows there, and springs.
type trap struct {
	match func(write) bool // called for every write, in order, by one goroutine at a time
	when  moment
	// spring does the harm, and says whether what was stopped is to be forwarded
	// late, or never.
	spring func(*worker) (late bool)

	mu     sync.Mutex
	sprung bool
	hit    chan struct{} // closed when it springs
	done   chan struct{} // closed when the harm is done
}

func newTrap(match func(write) bool, when moment, spring func(*worker) bool) *trap {
	return &trap{match: match, when: when, spring: spring, hit: make(chan struct{}), done: make(chan struct{})}
}

// snap springs the trap.
func (t *trap) snap(w *worker) (late bool) {
	close(t.hit)
	defer close(t.done)
	return t.spring(w)
}

// catches reports whether this is the write that the trap waits for.
func (t *trap) catches(w write) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sprung || !t.match(w) {
		return false
	}
	t.sprung = true
	return true
}

// A gate stands between one worker and the NATS server. It reads what they say
// to each other and forwards it unchanged, but for what is caught by the trap.
type gate struct {
	worker   *worker
	upstream string
	listener net.Listener

	mu      sync.Mutex
	traps   []*trap
	tickets map[string]string // that the worker was handed: their sessions, by position
}

func startGate(t testing.TB, w *worker, upstream string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{worker: w, upstream: upstream, listener: l, tickets: map[string]string{}}
	t.Cleanup(func() { l.Close() })
	go g.accept()
	return g
}

func (g *gate) url() string { return "nats://" + g.listener.Addr().String() }

// set lays traps, and takes the old ones away.
func (g *gate) set(traps ...*trap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.traps = traps
}

func (g *gate) caught(w write) *trap {
	g.mu.Lock()
	traps := g.traps
	g.mu.Unlock()
	for _, t := range traps {
		if t.catches(w) {
			return t
		}
	}
	return nil
}

// handed notes whose ticket a delivery is, if it is one.
func (g *gate) handed(m message) {
	session, ok := strings.CutPrefix(m.args[0], "jobs.default.")
	if !ok || len(m.args) < 4 {
		return
	}
	if ack := strings.Split(m.args[2], "."); len(ack) > 5 { // $JS.ACK.stream.consumer.delivered.position…
		g.mu.Lock()
		defer g.mu.Unlock()
		g.tickets[ack[5]] = session
	}
}

// released is whose ticket a publish deletes, or "".
func (g *gate) released(m message) string {
	if m.args[0] != released {
		return ""
	}
	position := m.payload[bytes.IndexByte(m.payload, ':')+1:] // {"seq":7,…
	position = position[:max(0, bytes.IndexByte(position, ','))]
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tickets[string(position)]
}

func (g *gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", g.upstream)
		if err != nil {
			client.Close()
			continue
		}
		c := &conn{gate: g, client: client, server: server, acks: map[string]*trap{}}
		go c.run(c.publish, client, server)
		go c.run(c.deliver, server, client)
	}
}

// A conn is one connection of a worker.
type conn struct {
	gate           *gate
	client, server net.Conn

	mu   sync.Mutex
	acks map[string]*trap // by the subject on which the answer comes
}

// run forwards in one direction until either side ends.
func (c *conn) run(handle func(message, io.Writer) error, from, to net.Conn) {
	defer c.client.Close()
	defer c.server.Close()
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		m, err := readMessage(in)
		if err != nil {
			return
		}
		if err := handle(m, to); err != nil {
			return
		}
	}
}

// publish forwards what the worker says.
func (c *conn) publish(m message, to io.Writer) error {
	if m.op != "HPUB" && m.op != "PUB" {
		return m.forward(to)
	}
	w := m.write()
	w.session = c.gate.released(m)
	t := c.gate.caught(w)
	switch {
	case t == nil:
	case t.when == before:
		if !t.snap(c.gate.worker) {
			return errCut
		}
	default:
		c.mu.Lock()
		c.acks[m.reply()] = t
		c.mu.Unlock()
	}
	return m.forward(to)
}

// deliver forwards what the server says.
func (c *conn) deliver(m message, to io.Writer) error {
	if m.op == "MSG" || m.op == "HMSG" {
		c.gate.handed(m)
		c.mu.Lock()
		t := c.acks[m.args[0]]
		delete(c.acks, m.args[0])
		c.mu.Unlock()
		if t != nil {
			if !t.snap(c.gate.worker) {
				return errCut
			}
		}
	}
	return m.forward(to)
}

var errCut = errors.New("cut by a trap")

// A message is one operation of NATS's protocol, with its payload if it has one.
type message struct {
	op      string
	args    []string
	line    []byte
	payload []byte // line end included
}

func readMessage(in *bufio.Reader) (message, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return message{}, err
	}
	m := message{line: line}
	fields := strings.Fields(string(line))
	if len(fields) == 0 {
		return m, nil
	}
	m.op, m.args = strings.ToUpper(fields[0]), fields[1:]
	switch m.op {
	case "PUB", "HPUB", "MSG", "HMSG":
		size, err := strconv.Atoi(m.args[len(m.args)-1])
		if err != nil {
			return m, fmt.Errorf("line %q: %w", line, err)
		}
		m.payload = make([]byte, size+2)
		if _, err := io.ReadFull(in, m.payload); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m message) forward(to io.Writer) error {
	_, err := to.Write(append(m.line, m.payload...))
	return err
}

// reply is where the answer to a publish goes, or "".
func (m message) reply() string {
	sizes := 1
	if m.op == "HPUB" {
		sizes = 2
	}
	if len(m.args) == 2+sizes {
		return m.args[1]
	}
	return ""
}

// write reads a publish as what it stores.
func (m message) write() write {
	w := write{subject: m.args[0]}
	if m.op != "HPUB" || !strings.HasPrefix(w.subject, "log.") {
		return w
	}
	headers, err := strconv.Atoi(m.args[len(m.args)-2])
	if err != nil {
		return w
	}
	for line := range bytes.Lines(m.payload[headers : len(m.payload)-2]) {
		if e, err := event.Decode(line); err == nil {
			w.events = append(w.events, e)
		}
	}
	return w
}

// The gate is worth something only if it reads the protocol right.
func TestMessagesAreReadAndForwardedUnchanged(t *testing.T) {
	const said = "CONNECT {\"verbose\":false}\r\nPING\r\nSUB a.b 1\r\n" +
		"PUB log.0.t.s _INBOX.x 11\r\nhello\r\nPUB \r\n" +
		"HPUB log.0.t.s _INBOX.y 12 16\r\nNATS/1.0\r\n\r\nbody\r\nMSG a 1 0\r\n\r\n"
	in, out := bufio.NewReader(strings.NewReader(said)), &bytes.Buffer{}
	var ops, replies []string
	for {
		m, err := readMessage(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, m.op)
		if m.op == "PUB" || m.op == "HPUB" {
			replies = append(replies, m.reply())
		}
		if err := m.forward(out); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(ops, " "), "CONNECT PING SUB PUB HPUB MSG"; got != want {
		t.Errorf("operations %q, want %q", got, want)
	}
	if got, want := strings.Join(replies, " "), "_INBOX.x _INBOX.y"; got != want {
		t.Errorf("replies %q, want %q", got, want)
	}
	if out.String() != said {
		t.Errorf("forwarded %q, want %q", out.String(), said)
	}
}
