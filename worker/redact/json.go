package redact

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxNesting bounds how deep JSON in strings of JSON is followed as JSON;
// beyond it, a string is text.
const maxNesting = 8

// JSON returns raw without its secrets; it stays valid JSON. The value of a
// sensitive key becomes "[redacted]" whatever its type, unless it is null or
// empty. Secrets in strings and keys are cut out of them; a string that holds
// JSON is treated as JSON. Every other byte, the order of keys and the digits
// of numbers stay, and if there is no secret raw itself is returned. What is
// not JSON is treated as String does.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return raw
	}
	w := walker{r: r, rules: r.rules.Load(), raw: raw}
	if !json.Valid(raw) {
		w.spans = r.search(raw)
	} else {
		w.value()
	}
	if len(w.spans) == 0 {
		return raw
	}
	return apply(nil, raw, w.spans)
}

// search is what String would replace in b.
func (r *Redactor) search(b []byte) []span {
	sc := r.scanner()
	defer r.release(sc)
	sc.buf = append(sc.buf, b...)
	sc.scan(true)
	return slices.Clone(sc.spans)
}

// walker goes through valid JSON and notes the spans to be replaced.
type walker struct {
	r       *Redactor
	rules   *rules
	raw     []byte
	pos     int
	spans   []span
	nesting int
}

func (w *walker) value() {
	w.blank()
	switch w.raw[w.pos] {
	case '{':
		w.object()
	case '[':
		w.array()
	case '"':
		w.text(w.string())
	default:
		from := w.pos
		w.scalar()
		if w.rules.values[string(w.raw[from:w.pos])] {
			w.replace(from, w.pos)
		}
	}
}

func (w *walker) object() {
	w.pos++
	for w.blank(); w.raw[w.pos] != '}'; w.blank() {
		if w.raw[w.pos] == ',' {
			w.pos++
			w.blank()
		}
		key := w.string()
		w.text(key)
		w.blank()
		w.pos++ // the colon
		w.blank()
		if w.rules.sensitive(decode(w.inside(key))) {
			w.hide()
		} else {
			w.value()
		}
	}
	w.pos++
}

func (w *walker) array() {
	w.pos++
	for w.blank(); w.raw[w.pos] != ']'; w.blank() {
		if w.raw[w.pos] == ',' {
			w.pos++
		}
		w.value()
	}
	w.pos++
}

// hide replaces the next value.
func (w *walker) hide() {
	from := w.pos
	w.skip()
	switch v := string(w.raw[from:w.pos]); v {
	case `null`, `""`, `"` + Mark + `"`:
	default:
		w.replace(from, w.pos)
	}
}

func (w *walker) replace(from, to int) {
	w.spans = append(w.spans, span{from, to, `"` + Mark + `"`})
}

// skip passes over the next value.
func (w *walker) skip() {
	depth := 0
	for {
		switch c := w.raw[w.pos]; {
		case c == '"':
			w.string()
		case c == '{' || c == '[':
			depth++
			w.pos++
		case c == '}' || c == ']':
			depth--
			w.pos++
		case c == ',' || c == ':' || blankClass[c]:
			w.pos++
		default:
			w.scalar()
		}
		if depth == 0 {
			return
		}
	}
}

func (w *walker) blank() {
	for w.pos < len(w.raw) && blankClass[w.raw[w.pos]] {
		w.pos++
	}
}

// scalar passes over a number or a word.
func (w *walker) scalar() {
	for w.pos < len(w.raw) && numberClass[w.raw[w.pos]] {
		w.pos++
	}
}

// string passes over a string, and returns it as a span, quotes included.
func (w *walker) string() span {
	s := span{from: w.pos}
	for w.pos++; w.raw[w.pos] != '"'; w.pos++ {
		if w.raw[w.pos] == '\\' {
			w.pos++
		}
	}
	w.pos++
	s.to = w.pos
	return s
}

func (w *walker) inside(s span) []byte { return w.raw[s.from+1 : s.to-1] }

// text looks for secrets inside a string.
func (w *walker) text(s span) {
	in := w.inside(s)
	plain := decode(in)
	spans := w.nested(plain)
	if len(spans) == 0 {
		return
	}
	w.spans = append(w.spans, encode(in, spans, s.from+1)...)
}

// nested is what to replace in the decoded text of a string.
func (w *walker) nested(plain []byte) []span {
	if len(plain) < 2 {
		return nil
	}
	if w.nesting < maxNesting && opensJSON(plain) && json.Valid(plain) {
		sub := walker{r: w.r, rules: w.rules, raw: plain, nesting: w.nesting + 1}
		sub.value()
		return sub.spans
	}
	return w.r.search(plain)
}

func opensJSON(b []byte) bool {
	for _, c := range b {
		if !blankClass[c] {
			return c == '{' || c == '[' || c == '"'
		}
	}
	return false
}

// encode moves spans found in the decoded text of in to in itself, which
// begins at base, and escapes what they put there.
func encode(in []byte, spans []span, base int) []span {
	at, plain := 0, 0 // the same place in both
	to := func(target int) int {
		for plain < target {
			raw, dec, _ := unit(in[at:])
			at, plain = at+raw, plain+dec
		}
		return base + at
	}
	out := make([]span, len(spans))
	for i, s := range spans {
		from := to(s.from)
		out[i] = span{from, to(s.to), escapeMark.Replace(s.text)}
	}
	return out
}

// escapeMark is enough for a Mark with quotes and backslashes around it.
var escapeMark = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// decode is the text of the inside of a string; it is in itself if nothing is
// escaped.
func decode(in []byte) []byte {
	for i, c := range in {
		if c == '\\' {
			return unescape(in, i)
		}
	}
	return in
}

func unescape(in []byte, i int) []byte {
	out := append(make([]byte, 0, len(in)), in[:i]...)
	for i < len(in) {
		if in[i] != '\\' {
			out = append(out, in[i])
			i++
			continue
		}
		raw, _, r := unit(in[i:])
		out = utf8.AppendRune(out, r)
		i += raw
	}
	return out
}

// unit is the first unit of the inside of a string: its bytes there, its bytes
// decoded, and the rune if it is an escape. A surrogate without its other half
// is U+FFFD.
func unit(in []byte) (raw, dec int, r rune) {
	if in[0] != '\\' {
		return 1, 1, 0
	}
	if i := strings.IndexByte(`"\/bfnrt`, in[1]); i >= 0 {
		return 2, 1, rune("\"\\/\b\f\n\r\t"[i])
	}
	raw, r = 6, hexRune(in[2:6])
	if utf16.IsSurrogate(r) {
		low := rune(-1)
		if len(in) >= 12 && in[6] == '\\' && in[7] == 'u' {
			low = hexRune(in[8:12])
		}
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			raw = 12
		}
	}
	return raw, utf8.RuneLen(r), r
}

func hexRune(digits []byte) (r rune) {
	for _, c := range digits {
		d := lower(c)
		if d >= 'a' {
			d = d - 'a' + 10 + '0'
		}
		r = r<<4 | rune(d-'0')
	}
	return r
}
