package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// A screen is where text grows downwards, with a block of lines below it that
// is redrawn in place on a terminal. Elsewhere there is no block. It is safe for
// concurrent use.
type screen struct {
	out   io.Writer
	live  bool // out is a terminal
	color bool

	mu     sync.Mutex
	inLine bool     // the text stands in mid-line
	block  []string // the lines below
	drawn  int      // how many of them are on the terminal
}

// maxBlock is how many lines the block may take of a terminal's height.
const maxBlock = 8

// A style is an SGR sequence.
type style string

const (
	plain  style = ""
	dim    style = "2"
	bold   style = "1"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

func (s *screen) paint(text string, st style) string {
	if !s.color || st == plain || text == "" {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[0m"
}

// text goes on where the last text ended. The block disappears until the next
// show, because text in mid-line has no place for it.
func (s *screen) text(text string, st style) {
	if text == "" {
		return
	}
	if s.live {
		text = printable(text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.erase() + s.paint(text, st))
	s.inLine = !strings.HasSuffix(text, "\n")
}

// line puts a finished line under the text and the block under that.
func (s *screen) line(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.erase() + s.newline() + line + "\n" + s.draw())
}

// settle is line and show in one: a line of the block becomes a finished one.
func (s *screen) settle(line string, block []string) {
	s.mu.Lock()
	s.block = block
	s.mu.Unlock()
	s.line(line)
}

// endLine finishes a line of text that may be open.
func (s *screen) endLine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inLine {
		s.write(s.erase() + s.newline())
	}
}

func (s *screen) midLine() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inLine
}

// show replaces the block.
func (s *screen) show(block []string) {
	if !s.live {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	erase := s.erase()
	s.block = block
	if len(block) > 0 {
		erase += s.newline()
	}
	s.write(erase + s.draw())
}

// refresh redraws the block with new lines if it is on the terminal.
func (s *screen) refresh(block []string) {
	s.mu.Lock()
	visible := s.drawn > 0
	s.mu.Unlock()
	if visible {
		s.show(block)
	}
}

// note writes a line to another writer that may be the same terminal.
func (s *screen) note(w io.Writer, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.erase()
	if s.live {
		before += s.newline()
	}
	s.write(before)
	fmt.Fprintln(w, line)
	s.write(s.draw())
}

func (s *screen) newline() string {
	if !s.inLine {
		return ""
	}
	s.inLine = false
	return "\n"
}

// erase returns what removes the block: up to its first line, clear from there.
func (s *screen) erase() string {
	if s.drawn == 0 {
		return ""
	}
	n := s.drawn
	s.drawn = 0
	return fmt.Sprintf("\r\x1b[%dA\x1b[J", n)
}

// draw returns the block. Wrapping is off meanwhile: a line that wraps would be
// two lines to erase.
func (s *screen) draw() string {
	if !s.live || len(s.block) == 0 || s.inLine {
		return ""
	}
	block := s.block
	if len(block) > maxBlock { // what scrolls away cannot be erased
		block = append(block[:maxBlock-1:maxBlock-1], fmt.Sprintf("… and %d more", len(block)-maxBlock+1))
	}
	s.drawn = len(block)
	return "\x1b[?7l" + strings.Join(block, "\n") + "\n\x1b[?7h"
}

func (s *screen) write(text string) {
	if text != "" {
		_, _ = io.WriteString(s.out, text)
	}
}
