package redact

// class is a set of bytes.
type class [256]bool

func classOf(ranges string, with ...*class) (c class) {
	for i := 0; i+1 < len(ranges); i += 2 {
		for b := int(ranges[i]); b <= int(ranges[i+1]); b++ {
			c[b] = true
		}
	}
	for _, w := range with {
		for b, in := range w {
			c[b] = c[b] || in
		}
	}
	return c
}

// except is every printable byte and every byte beyond ASCII, but for these.
func except(bytes string) class {
	c := classOf("!~\x80\xff")
	for i := range len(bytes) {
		c[bytes[i]] = false
	}
	return c
}

var (
	alnum       = classOf("azAZ09")
	wordClass   = classOf("__--", &alnum)
	jwtClass    = classOf("..", &wordClass)
	bearerClass = classOf("..~~++//==", &wordClass)
	upperClass  = classOf("AZ09")
	base64Class = classOf("++//", &alnum)
	paddedClass = classOf("==", &base64Class)
	labelClass  = classOf("AZ09  ")
	spaceClass  = classOf("  \t\t")
	blankClass  = classOf("  \t\t\n\n\r\r")
	slashClass  = classOf(`\\`)
	numberClass = classOf("++..--", &alnum)

	// No value that ends by class takes a quote or a backslash: the text may
	// be JSON, and has to stay JSON.
	valueClass    = except("\"'`\\;&|)")
	queryClass    = except("\"'`\\;&#<>")
	userClass     = except("\"'`\\/?#@:<>()[]{},;")
	passwordClass = except("\"'`\\/?#<>")
	lineClass     = classOf("  \t\t", ptr(except("\"'`\\")))
)

func ptr(c class) *class { return &c }

// Triggers: what a rule can begin with.
const (
	anywhere = 1 + iota
	atWord   // only where a word begins, and before one of followers
)

var (
	triggers  [256]byte
	followers [256]class
)

func init() {
	starts := []string{"be", "ba"}
	for _, toks := range tokensBy {
		for _, t := range toks {
			starts = append(starts, t.prefix)
		}
	}
	for _, s := range starts {
		for _, c := range []byte{s[0], s[0] &^ 0x20} { // either case, to be simple
			triggers[c] = atWord
			followers[c][s[1]] = true
			followers[c][s[1]&^0x20] = true
		}
	}
	triggers[':'], triggers['='], triggers['-'] = anywhere, anywhere, anywhere
}

// nextTrigger is the next place from i on where a rule has to be asked, or the
// length of b.
func nextTrigger(b []byte, i int) int {
	for ; i < len(b); i++ {
		switch triggers[b[i]] {
		case anywhere:
			return i
		case atWord:
			if i+1 < len(b) && !followers[b[i]][b[i+1]] {
				continue
			}
			if i == 0 || !alnum[b[i-1]] || escaped(b, i) {
				return i
			}
		}
	}
	return i
}

// escaped reports whether the letter or digit before i ends an escape: \n,
// \u000a or %20, as JSON and URLs write what stands between words.
func escaped(b []byte, i int) bool {
	switch {
	case i >= 2 && b[i-2] == '\\':
		c := b[i-1]
		return c == 'n' || c == 't' || c == 'r' || c == 'f' || c == 'b'
	case i >= 3 && b[i-3] == '%':
		return hex(b[i-1]) && hex(b[i-2])
	case i >= 6 && b[i-6] == '\\':
		return b[i-5] == 'u'
	}
	return false
}

func hex(c byte) bool   { return digit(c) || lower(c) >= 'a' && lower(c) <= 'f' }
func digit(c byte) bool { return c >= '0' && c <= '9' }

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// literal matches s at i and returns the place after it.
func (t text) literal(i int, s string) (int, verdict) {
	return t.compare(i, s, func(c byte) byte { return c })
}

// literalFold does so in either case; s is in lower case.
func (t text) literalFold(i int, s string) (int, verdict) {
	return t.compare(i, s, lower)
}

func (t text) compare(i int, s string, fold func(byte) byte) (int, verdict) {
	for k := range len(s) {
		if i+k >= len(t.b) {
			return 0, undecided
		}
		if fold(t.b[i+k]) != s[k] {
			return 0, miss
		}
	}
	return i + len(s), hit
}

// run is the longest stretch of class bytes at i, of at most limit.
func (t text) run(i int, c *class, limit int) []byte {
	end := min(len(t.b), i+limit)
	n := i
	for n < end && c[t.b[n]] {
		n++
	}
	return t.b[i:n]
}

// until is the place after a run of less than limit that something follows.
func (t text) until(i int, c *class, limit int) (int, verdict) {
	end := i + len(t.run(i, c, limit))
	switch {
	case end-i == limit:
		return 0, miss
	case end == len(t.b):
		return 0, undecided
	}
	return end, hit
}

// grow is the verdict on a run at i that does not do yet: undecided if more of
// it may follow.
func (t text) grow(i int, run []byte, limit int) found {
	if i+len(run) == len(t.b) && len(run) < limit {
		return t.short()
	}
	return found{}
}

// orShort turns the verdict of a part into that of the whole.
func (t text) orShort(v verdict) found {
	if v == undecided {
		return t.short()
	}
	return found{}
}
