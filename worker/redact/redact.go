package redact

import (
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// Mark stands in the place of whatever was taken out.
const Mark = "[redacted]"

// minSecret is the length in bytes below which a known value is ignored: so
// short a value ("admin", "1234") turns up in ordinary text by chance, and
// taking it out would both ruin the log and, by the pattern of the holes,
// betray the value.
const minSecret = 6

// Options says what a Redactor looks for beyond the built-in key names and
// token shapes. The zero value works.
type Options struct {
	// Secrets are values to hide wherever they appear, in the encodings the
	// package comment lists. Space around a value is ignored, and so is a
	// value of less than 6 bytes.
	Secrets []string
	// Keys are further names whose value is hidden, in any spelling: "TaxID"
	// also stands for tax_id, tax-id and TAX_ID.
	Keys []string
}

// Redactor takes secrets out of text and JSON. It is safe for concurrent use;
// only Learn changes what it does, for calls that begin after it.
type Redactor struct {
	mu    sync.Mutex // held by Learn
	rules atomic.Pointer[rules]
	pool  sync.Pool // of *scanner
}

// rules is what a Redactor knows. It never changes once it is published.
type rules struct {
	keys   map[string]bool // folded names from Options.Keys
	values map[string]bool // known secrets
	known  *known          // their forms; nil if there are none
}

// New builds a Redactor.
func New(o Options) *Redactor {
	r := &Redactor{}
	keys := map[string]bool{}
	for _, k := range o.Keys {
		if name := foldedName(k); name != "" {
			keys[name] = true
		}
	}
	r.pool.New = func() any { return &scanner{} }
	r.rules.Store(&rules{keys: keys, values: map[string]bool{}})
	r.Learn(o.Secrets...)
	return r
}

// Learn adds secret values. When it returns, every later call hides them, and
// so does every Stream from its next Write on; text a Stream has already given
// out stays out. It costs time in proportion to all values known, so give it
// many at once.
func (r *Redactor) Learn(values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.rules.Load()
	all := maps.Clone(old.values)
	for _, v := range values {
		if v = strings.TrimSpace(v); len(v) >= minSecret {
			all[v] = true
		}
	}
	if len(all) == len(old.values) {
		return
	}
	r.rules.Store(&rules{keys: old.keys, values: all, known: newKnown(all)})
}

// String returns s without its secrets, or s itself if it holds none.
func (r *Redactor) String(s string) string {
	sc := r.scanner()
	defer r.release(sc)
	sc.buf = append(sc.buf, s...)
	sc.scan(true)
	if len(sc.spans) == 0 {
		return s
	}
	return string(apply(nil, sc.buf, sc.spans))
}

// Args returns the raw argument text of a tool call without its secrets: as
// JSON does if it is JSON, else as String does. changed says whether anything
// was taken out; such a call cannot be repeated from the log.
func (r *Redactor) Args(s string) (out string, changed bool) {
	out = string(r.JSON(json.RawMessage(s)))
	return out, out != s
}

// scanner borrows an empty scanner with today's rules.
func (r *Redactor) scanner() *scanner {
	sc := r.pool.Get().(*scanner)
	sc.reset(r.rules.Load())
	return sc
}

// maxPooled keeps the memory of one huge text from staying for ever.
const maxPooled = 1 << 20

func (r *Redactor) release(sc *scanner) {
	if cap(sc.buf) <= maxPooled {
		clear(sc.buf) // no secret lingers in idle memory
		r.pool.Put(sc)
	}
}

// span is a stretch of bytes to be replaced by text.
type span struct {
	from, to int
	text     string
}

// apply appends b to dst with every span replaced. Spans are sorted and apart.
func apply(dst, b []byte, spans []span) []byte {
	at := 0
	for _, s := range spans {
		dst = append(dst, b[at:s.from]...)
		dst = append(dst, s.text...)
		at = s.to
	}
	return append(dst, b[at:]...)
}
