package stream

import (
	"bufio"
	"io"
	"net/http"
	"testing"
)

// A pipe is a client that reads an answer as it comes.
type pipe struct {
	*io.PipeWriter
	rd *bufio.Reader
}

func newPipe() *pipe {
	r, w := io.Pipe()
	return &pipe{w, bufio.NewReader(r)}
}

func (p *pipe) Header() http.Header { return http.Header{} }
func (p *pipe) WriteHeader(int)     {}
func (p *pipe) Flush()              {}

func (p *pipe) line(t testing.TB) string {
	t.Helper()
	line, err := p.rd.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}
