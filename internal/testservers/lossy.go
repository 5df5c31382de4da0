package testservers

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A Lossy stands between one client and its NATS server and loses messages on
// their way to the client, as core NATS may: whatever else they say to each other
// is forwarded unchanged. Proxy is for faults that know nothing of messages.
type Lossy struct {
	t        testing.TB
	upstream string
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex
	news  sync.Cond // conns have changed
	rule  func(subject string) bool
	lost  int
	ended bool
	conns map[net.Conn]bool // true: held
}

// StartLossy starts one before the server at upstream, a host and port. It ends
// with the test.
func StartLossy(t testing.TB, upstream string) *Lossy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Lossy{t: t, upstream: upstream, listener: ln, conns: map[net.Conn]bool{}}
	l.news.L = &l.mu
	l.serving.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// URL is where the client connects to.
func (l *Lossy) URL() string { return "nats://" + l.listener.Addr().String() }

// Lose has messages lost for whose subject rule is true; it is called for each, by
// one goroutine at a time. Nil: none.
func (l *Lossy) Lose(rule func(subject string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rule = rule
}

// Lost is how many messages were lost so far.
func (l *Lossy) Lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Stall holds what the server sends on the connections that there are; what the
// client sends goes on. It does not learn of it but by its own pings.
func (l *Lossy) Stall() { l.hold(true) }

// Resume ends a Stall: what was held arrives.
func (l *Lossy) Resume() { l.hold(false) }

func (l *Lossy) hold(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		l.conns[c] = held
	}
	l.news.Broadcast()
}

// Cut closes all connections, with what was held.
func (l *Lossy) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
		l.conns[c] = false
	}
	l.news.Broadcast()
}

func (l *Lossy) close() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	_ = l.listener.Close()
	l.Cut()
	l.serving.Wait()
}

func (l *Lossy) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		if l.keep(client, server) {
			l.serving.Go(func() { _, _ = io.Copy(server, client); l.drop(client, server) })
			l.serving.Go(func() { l.forward(client, bufio.NewReader(server)); l.drop(client, server) })
		}
	}
}

func (l *Lossy) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if l.ended {
			_ = c.Close()
			continue
		}
		l.conns[c] = false
	}
	return !l.ended
}

func (l *Lossy) drop(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(l.conns, c)
	}
	l.news.Broadcast()
}

// forward hands on what the server says, until one of the two has gone.
func (l *Lossy) forward(client net.Conn, server *bufio.Reader) {
	for {
		said, subject, err := readServer(server)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrUnexpectedEOF) {
				l.t.Logf("lossy: %v", err)
			}
			return
		}
		if !l.loses(client, subject) {
			if _, err := client.Write(said); err != nil {
				return
			}
		}
	}
}

// loses decides about a message when it is no longer held.
func (l *Lossy) loses(client net.Conn, subject string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.conns[client] {
		l.news.Wait()
	}
	if subject == "" || l.rule == nil || !l.rule(subject) {
		return false
	}
	l.lost++
	return true
}

// readServer reads one thing that a server says: a line, and what follows it if it
// is a message, of which subject is set.
func readServer(r *bufio.Reader) (said []byte, subject string, err error) {
	line, err := r.ReadSlice('\n')
	said = bytes.Clone(line)
	if err != nil {
		return nil, "", err
	}
	words := strings.Fields(string(said))
	if len(words) < 4 || words[0] != "MSG" && words[0] != "HMSG" {
		return said, "", nil
	}
	n, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return nil, "", err
	}
	head := len(said)
	said = append(said, make([]byte, n+len("\r\n"))...)
	_, err = io.ReadFull(r, said[head:])
	return said, words[1], err
}
