package edge

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/runlog-dev/runlog/eventlog"
)

// A lingerListener counts what its connections send although their end would look usual already.
type lingerListener struct {
	net.Listener
	late atomic.Int64
}

func (l *lingerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &lingerConn{Conn: c, home: l}, err
}

type lingerConn struct {
	net.Conn
	home  *lingerListener
	usual atomic.Bool
}

func (c *lingerConn) SetLinger(seconds int) error {
	c.usual.Store(seconds < 0)
	return nil
}

func (c *lingerConn) Write(b []byte) (int, error) {
	if c.usual.Load() {
		c.home.late.Add(int64(len(b)))
	}
	return c.Conn.Write(b)
}

// In HTTP/1.0 an answer whose length is not told has left before its connection may end as usual: a client that reads
// slowly could else take what a killed process has sent for all of it.
func TestOldAnswersHaveLeftBeforeTheirEnd(t *testing.T) {
	s := New(Deps{Log: new(eventlog.Log)}, Options{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, json.RawMessage(`"`+strings.Repeat("x", 10_000)+`"`))
	})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lingerListener{Listener: tcp}
	srv := &http.Server{Handler: s.around(mux), ConnContext: withConn}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	conn, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /large HTTP/1.0\r\n\r\n")
	body, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(body), strings.Repeat("x", 10_000)+"\"\n") {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	if n := l.late.Load(); n > 0 && !strings.Contains(string(body), "Content-Length") {
		t.Errorf("%d bytes came after that", n)
	}
}
