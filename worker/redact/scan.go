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
	spans spans // what scan found and nobody has cut off

	seen int   // bytes read by the search for known values
	node int32 // and where that search stands

	next   int   // first byte the search for shapes has not decided
	tail   tail  // what is being swallowed at next, or nil
	shapes spans // found in this scan
	noJWT  int   // before it, no JWT begins
}

func (s *scanner) reset(r *rules) {
	*s = scanner{rules: r, buf: s.buf[:0], spans: s.spans[:0], shapes: s.shapes[:0]}
}

// scan reads what was added to buf and returns up to where the spans are
// final. At the end of the text (eof) that is all of it.
func (s *scanner) scan(eof bool) int {
	known := s.scanKnown()
	s.scanShapes(eof)
	s.merge()
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
		v := text{b: s.buf, eof: eof, rules: s.rules, noJWT: s.noJWT}
		m := v.match(i)
		switch m.verdict {
		case undecided:
			return
		case miss:
			s.next++
			s.noJWT = max(s.noJWT, m.to)
		case hit:
			s.shapes.cover(m.from, m.to, m.text)
			s.next, s.tail = m.to, m.tail
		}
	}
}

// swallow lets the tail take bytes and reports whether it has ended.
func (s *scanner) swallow(eof bool) bool {
	n, done := s.tail.eat(s.buf[s.next:], eof)
	s.shapes.cover(s.next, s.next+n, s.tail.text())
	s.next += n
	if done {
		s.tail = nil
	}
	return done
}

// merge adds the shapes to the known values, in order, so that many of both
// cost no more than their number.
func (s *scanner) merge() {
	if len(s.shapes) == 0 {
		return
	}
	known := append(spans(nil), s.spans...)
	s.spans = s.spans[:0]
	for _, x := range s.shapes {
		for len(known) > 0 && known[0].from <= x.from {
			s.spans.cover(known[0].from, known[0].to, known[0].text)
			known = known[1:]
		}
		s.spans.cover(x.from, x.to, x.text)
	}
	for _, k := range known {
		s.spans.cover(k.from, k.to, k.text)
	}
	s.shapes = s.shapes[:0]
}

// spans are sorted; they neither overlap nor touch.
type spans []span

// cover adds a span. Spans that touch become one, under the text of the one
// that begins first; the one that is not a bare Mark wins a tie.
func (l *spans) cover(from, to int, text string) {
	if from >= to {
		return
	}
	all := *l
	i := len(all)
	for i > 0 && all[i-1].to >= from {
		i--
	}
	add := span{from, to, text}
	j := i
	for ; j < len(all) && all[j].from <= to; j++ {
		add = join(add, all[j])
	}
	if i == j {
		all = append(all, span{})
		copy(all[i+1:], all[i:])
	} else {
		all = append(all[:i+1], all[j:]...)
	}
	all[i] = add
	*l = all
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
