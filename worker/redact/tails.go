package redact

import "bytes"

// tail swallows the rest of a secret as it comes, so that none is too long.
type tail interface {
	// eat says how many bytes of b to cover, and whether the secret ends
	// there. If it does not, what is left of b waits for more; at the end of
	// the text (eof) nothing is left.
	eat(b []byte, eof bool) (n int, done bool)
	// text is what stands in the place of the swallowed bytes.
	text() string
}

// classTail ends at the first byte that is not in the class.
type classTail struct{ class *class }

func (c classTail) text() string { return Mark }

func (c classTail) eat(b []byte, eof bool) (int, bool) {
	for i, x := range b {
		if !c.class[x] {
			return i, true
		}
	}
	return len(b), eof
}

// scalarTail is a classTail for a bare JSON value, whose mark needs quotes.
type scalarTail struct {
	class *class
	quoting
}

func (s scalarTail) eat(b []byte, eof bool) (int, bool) {
	return classTail{s.class}.eat(b, eof)
}

// quoting is how a text writes a quote: the char, after as many backslashes
// as the nesting of strings in strings asks for (0, 1, 3, 7).
type quoting struct {
	char   byte
	before int
}

// text is a Mark that is a string of its own.
func (q quoting) text() string {
	s := string(bytes.Repeat([]byte{'\\'}, q.before)) + string(q.char)
	return s + Mark + s
}

// period is the number of backslashes that stand for one of the string's own.
func (q quoting) period() int { return 2 * (q.before + 1) }

// ends reports whether a quote after run backslashes ends the string, either
// because it is its own or because it is that of a string around it.
func (q quoting) ends(char byte, run int) bool {
	if char != q.char && char != '"' {
		return false
	}
	return run%q.period() != q.period()-1
}

// quotedTail is the inside of a string.
type quotedTail struct{ quoting }

func (q quotedTail) text() string { return Mark }

func (q quotedTail) eat(b []byte, eof bool) (int, bool) {
	run := 0
	for i, c := range b {
		if c == '\\' {
			run++
			continue
		}
		if q.ends(c, run) {
			return i - run%q.period(), true
		}
		run = 0
	}
	if eof {
		return len(b), true
	}
	return len(b) - run%q.period(), false
}

// nestedTail is an object or array, its opening bracket included. It also ends
// at the first thing that cannot be JSON.
type nestedTail struct {
	quoting
	depth  int
	inside bool // a string
}

func (n *nestedTail) eat(b []byte, eof bool) (int, bool) {
	run := 0
	for i, c := range b {
		if c == '\\' {
			run++
			if !n.inside && run > maxSlashes {
				return i + 1 - run, true
			}
			continue
		}
		waiting := n.waiting(run)
		if !n.step(c, run) {
			return i - waiting, true
		}
		run = 0
		if n.depth == 0 {
			return i + 1, true
		}
	}
	if eof {
		return len(b), true
	}
	return len(b) - n.waiting(run), false
}

// waiting is how many of run backslashes are not covered before it is known
// what follows them.
func (n *nestedTail) waiting(run int) int {
	if n.inside {
		return run % n.period()
	}
	return run
}

// maxSlashes is more than any nesting the rules follow needs before a quote.
const maxSlashes = 8

// step takes a char after run backslashes and reports whether it can be.
func (n *nestedTail) step(c byte, run int) bool {
	switch {
	case n.inside:
		if c == n.char && run%n.period() == n.before {
			n.inside = false
			return true
		}
		return !n.ends(c, run)
	case c == n.char && run == n.before:
		n.inside = true
		return true
	case run > 0:
		return run == (n.before+1)/2 && (c == 'n' || c == 'r' || c == 't')
	case c == '{' || c == '[':
		n.depth++
	case c == '}' || c == ']':
		n.depth--
	}
	return c != '"' && nestedClass[c]
}

var nestedClass = classOf("{{}}[[]]::,,..++--EEaaeeffllnnrrssttuu09", &blankClass)

// maxPEM bounds a private key block that never ends, in bytes.
const maxPEM = 16 << 10

// pemTail is the rest of a private key block, up to its end marker, a quote,
// or its bound.
type pemTail struct{ size int }

func (p *pemTail) text() string { return Mark }

func (p *pemTail) eat(b []byte, eof bool) (int, bool) {
	for i := 0; i < len(b); {
		n, v := p.unit(text{b: b, eof: eof}, i)
		switch {
		case v == undecided:
			return i, false
		case v == hit:
			return i + n, true
		case n == 0:
			return i, true
		}
		i += n
		if p.size += n; p.size > maxPEM {
			return i, true
		}
	}
	return len(b), eof
}

// unit is the size of what stands at i: the end marker (hit), one byte or an
// escaped line end (miss), or 0 for what cannot be in a block.
func (p *pemTail) unit(t text, i int) (int, verdict) {
	switch c := t.b[i]; {
	case c == '-':
		f := t.pemEnd(i)
		return max(1, f.to-i), f.verdict
	case c == '\\':
		run := len(t.run(i, &slashClass, maxSlashes))
		if i+run == len(t.b) {
			if t.eof {
				return run, miss
			}
			return 0, undecided
		}
		if next := t.b[i+run]; next == 'n' || next == 'r' || next == 't' {
			return run + 1, miss
		}
		return 0, miss
	case blankClass[c] || lineClass[c] && c < 0x80:
		return 1, miss
	}
	return 0, miss
}

// pemEnd matches the end marker of a private key block.
func (t text) pemEnd(i int) found {
	at, v := t.literal(i, "-----END ")
	if v != hit {
		return t.orShort(v)
	}
	end, v := t.until(at, &labelClass, maxLabel)
	if v != hit {
		return t.orShort(v)
	}
	if end, v = t.literal(end, "-----"); v != hit {
		return t.orShort(v)
	}
	return found{verdict: hit, to: end}
}
