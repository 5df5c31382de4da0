package redact

import "unicode/utf8"

// lookback is how many bytes before a position the rules may read. A Stream
// keeps that many of what it has already given out.
const lookback = 128

// scanner finds the spans to be replaced in a text that may still grow. Two
// independent searches run over it: for known values (known.go) and for shapes
// (shapes.go, fields.go). What either decides depends on the text alone, never
// on how it was cut into pieces, because an undecided place is waited for.
type scanner struct {
	rules *rules
	buf   []byte
	spans []span // sorted; they neither overlap nor touch

	seen int   // bytes read by the search for known values
	node int32 // and where that search stands

	next int  // first byte the search for shapes has not decided
	tail tail // what is being swallowed at next, or nil
}

func (s *scanner) reset(r *rules) {
	*s = scanner{rules: r, buf: s.buf[:0], spans: s.spans[:0]}
}

// scan reads what was added to buf and returns up to where the spans are
// final. At the end of the text (eof) that is all of it.
func (s *scanner) scan(eof bool) int {
	known := s.scanKnown()
	s.scanShapes(eof)
	if eof {
		return len(s.buf)
	}
	return min(known, s.next, wholeRunes(s.buf))
}

func (s *scanner) scanShapes(eof bool) {
	for s.next < len(s.buf) {
		if s.tail != nil {
			if !s.swallow(eof) {
				return
			}
			continue
		}
		i := nextTrigger(s.buf, s.next)
		s.next = i
		if i == len(s.buf) {
			return
		}
		v := text{b: s.buf, eof: eof, rules: s.rules}
		m := v.match(i)
		switch m.verdict {
		case undecided:
			return
		case miss:
			s.next++
		case hit:
			s.cover(m.from, m.to, m.text)
			s.next, s.tail = m.to, m.tail
		}
	}
}

// swallow lets the tail take bytes and reports whether it has ended.
func (s *scanner) swallow(eof bool) bool {
	n, done := s.tail.eat(s.buf[s.next:], eof)
	s.cover(s.next, s.next+n, s.tail.text())
	s.next += n
	if done {
		s.tail = nil
	}
	return done
}

// cover adds a span. Spans that touch become one, under the text of the one
// that begins first; the one that is not a bare Mark wins a tie.
func (s *scanner) cover(from, to int, text string) {
	if from >= to {
		return
	}
	i := len(s.spans)
	for i > 0 && s.spans[i-1].to >= from {
		i--
	}
	add := span{from, to, text}
	j := i
	for ; j < len(s.spans) && s.spans[j].from <= to; j++ {
		add = join(add, s.spans[j])
	}
	if i == j {
		s.spans = append(s.spans, span{})
		copy(s.spans[i+1:], s.spans[i:])
	} else {
		s.spans = append(s.spans[:i+1], s.spans[j:]...)
	}
	s.spans[i] = add
}

func join(a, b span) span {
	if b.from < a.from || b.from == a.from && a.text == Mark {
		a, b = b, a
	}
	a.to = max(a.to, b.to)
	return a
}

// wholeRunes is the length of b without a rune that has only begun.
func wholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if !utf8.RuneStart(b[i]) {
			continue
		}
		if !utf8.FullRune(b[i:]) {
			return i
		}
		break
	}
	return len(b)
}
