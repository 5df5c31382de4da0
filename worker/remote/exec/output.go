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
type output struct{ p *child.Process }

func newOutput(p *child.Process) *output {
	go func() {
		<-p.Done()
		_ = p.Out.SetReadDeadline(time.Now()) // wakes a read that waits
	}()
	return &output{p}
}

func (o *output) Read(b []byte) (int, error) {
	for {
		gone := o.gone()
		if gone {
			_ = o.p.Out.SetReadDeadline(time.Now().Add(linger))
		}
		n, err := o.p.Out.Read(b)
		switch {
		case n > 0 || err == nil:
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, io.EOF
		case gone:
			return 0, io.EOF
		}
	}
}

func (o *output) gone() bool {
	select {
	case <-o.p.Done():
		return true
	default:
		return false
	}
}
