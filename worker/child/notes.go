package child

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	maxNote      = 2 << 10 // bytes of a logged line; the rest of it is dropped
	notesPerSec  = 50      // lines logged in a second; the others are counted
	maxLastWords = 300
)

// notes logs what a child says on stderr, within bounds, and keeps its last line.
type notes struct {
	log   *slog.Logger
	level slog.Level
	what  string

	second time.Time // owned by read, as the next two
	logged int
	missed int

	ended chan struct{} // closed with its source

	mu   sync.Mutex
	last string
}

func newNotes(o Options) *notes {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &notes{log: o.Log, level: o.Level, what: o.What, ended: make(chan struct{})}
}

// read ends with its source, and closes it.
func (n *notes) read(src io.ReadCloser) {
	defer close(n.ended)
	defer src.Close()
	r := bufio.NewReaderSize(src, maxNote)
	for {
		piece, err := r.ReadSlice('\n')
		n.line(strings.TrimSpace(string(piece)))
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

func (n *notes) line(s string) {
	if s == "" {
		return
	}
	n.mu.Lock()
	n.last = s
	n.mu.Unlock()
	if now := time.Now(); now.Sub(n.second) >= time.Second {
		if n.missed > 0 {
			n.log.Log(context.Background(), n.level, n.what, "lines_left_out", n.missed)
		}
		n.second, n.logged, n.missed = now, 0, 0
	}
	if n.logged >= notesPerSec {
		n.missed++
		return
	}
	n.logged++
	n.log.Log(context.Background(), n.level, n.what, "line", s)
}

// lastWords waits a moment for what is still under way.
func (n *notes) lastWords() string {
	select {
	case <-n.ended:
	case <-time.After(time.Second): // something else may hold it open
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.ToValidUTF8(n.last[:min(len(n.last), maxLastWords)], "")
}
