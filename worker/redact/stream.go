package redact

// Stream redacts a text that arrives in pieces. What Write and Close return,
// joined, is what String returns for the joined pieces, however they are cut.
//
// Write keeps back only the end of the text that may yet turn out to be the
// beginning of a secret (or half a rune), never more than 8 KiB; a token that
// goes on for ever is swallowed as it comes. A Stream has one user at a time.
type Stream struct {
	r      *Redactor
	sc     scanner
	done   int  // bytes of sc.buf already given out
	marked bool // the last thing given out was a Mark for the byte before done
}

// keep is how much given-out text may pile up before it is moved out.
const keep = 1024

// Stream begins a text.
func (r *Redactor) Stream() *Stream {
	s := &Stream{r: r}
	s.sc.reset(r.rules.Load())
	return s
}

// Write takes the next piece and returns what can be shown now.
func (s *Stream) Write(delta string) string {
	if delta == "" {
		return ""
	}
	s.refresh()
	s.compact()
	begin := len(s.sc.buf)
	s.sc.buf = append(s.sc.buf, delta...)
	to := max(s.done, s.sc.scan(false))
	if begin == s.done && s.clean(to) {
		return s.pass(delta, to)
	}
	return s.emit(to)
}

// Close ends the text and returns the rest of it. The Stream can then be used
// for another text.
func (s *Stream) Close() string {
	s.refresh()
	out := s.emit(s.sc.scan(true))
	clear(s.sc.buf)
	s.sc.reset(s.r.rules.Load())
	s.done, s.marked = 0, false
	return out
}

// refresh takes up rules that have changed since the last piece: what is held
// back is searched again for the values that were learned meanwhile.
func (s *Stream) refresh() {
	if now := s.r.rules.Load(); now != s.sc.rules {
		s.sc.rules, s.sc.node, s.sc.seen = now, 0, s.done
	}
}

// compact drops what was given out, but for what the rules may look back at.
func (s *Stream) compact() {
	n := s.done - lookback
	if n < keep {
		return
	}
	sc := &s.sc
	sc.buf = sc.buf[:copy(sc.buf, sc.buf[n:])]
	sc.seen, sc.next, sc.noJWT, s.done = sc.seen-n, sc.next-n, sc.noJWT-n, s.done-n
	for i := range sc.spans {
		sc.spans[i].from -= n
		sc.spans[i].to -= n
	}
}

// clean reports whether nothing is replaced before to.
func (s *Stream) clean(to int) bool {
	return len(s.sc.spans) == 0 || s.sc.spans[0].from >= to
}

// pass gives out the beginning of delta as it is, without a copy.
func (s *Stream) pass(delta string, to int) string {
	out := delta[:to-s.done]
	if out != "" {
		s.done, s.marked = to, false
	}
	return out
}

// emit gives out everything before to.
func (s *Stream) emit(to int) string {
	var out []byte
	for s.done < to {
		next := span{from: to, to: to}
		if len(s.sc.spans) > 0 && s.sc.spans[0].from < to {
			next = s.sc.spans[0]
		}
		if next.from > s.done {
			out = append(out, s.sc.buf[s.done:next.from]...)
			s.done, s.marked = next.from, false
			continue
		}
		if !s.marked {
			out = append(out, next.text...)
		}
		s.done, s.marked = min(next.to, to), true
		s.trim()
	}
	return string(out)
}

// trim cuts off the part of the first span that was given out.
func (s *Stream) trim() {
	first := &s.sc.spans[0]
	if first.to > s.done {
		first.from = s.done
		return
	}
	s.sc.spans = s.sc.spans[:copy(s.sc.spans, s.sc.spans[1:])]
}
