package exec

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/runlog-dev/runlog/worker/child"
)

// linger is how long the output of a program that has ended may stay silent: one
// that left its process group may hold it open for ever.
const linger = time.Second

// output reads what a program has written, to the end of it even if the reader
// is slow and the program long gone.
type output struct {
	out  *os.File
	gone chan struct{} // closed after the program has ended and a read that waits was woken
}

func newOutput(p *child.Process) *output {
	o := &output{p.Out, make(chan struct{})}
	go func() {
		<-p.Done()
		_ = o.out.SetReadDeadline(time.Now())
		close(o.gone)
	}()
	return o
}

func (o *output) Read(b []byte) (int, error) {
	for {
		select {
		case <-o.gone:
			return o.rest(b)
		default:
		}
		n, err := o.out.Read(b)
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			<-o.gone
		case err != nil:
			return 0, io.EOF
		}
	}
}

// rest reads what is left in the pipe. From here on nobody else sets deadlines.
func (o *output) rest(b []byte) (int, error) {
	_ = o.out.SetReadDeadline(time.Now().Add(linger))
	n, err := o.out.Read(b)
	if n == 0 && err != nil {
		return 0, io.EOF
	}
	return n, nil
}
