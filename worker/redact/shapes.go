package redact

import (
	"bytes"
	"encoding/base64"
)

// verdict is what a rule says about a place in the text.
type verdict int

const (
	miss      verdict = iota // not here, whatever follows
	undecided                // depends on what follows
	hit                      // here, whatever follows
)

// found is a verdict; with a hit comes what to cover at once, [from, to), and
// the tail that swallows the rest from there, if there is one.
type found struct {
	verdict
	from, to int
	text     string
	tail     tail
}

// text is what the rules read: b, which ends here if eof is set.
type text struct {
	b     []byte
	eof   bool
	rules *rules
	noJWT int // before it, no JWT begins
}

// short is the verdict where the text ended before the rule could decide.
func (t text) short() found {
	if t.eof {
		return found{}
	}
	return found{verdict: undecided}
}

// match asks the rules that can begin at i. They are asked in a fixed order,
// and one that is undecided holds up those after it: else the answer would
// depend on how much of the text had arrived.
func (t text) match(i int) found {
	switch t.b[i] {
	case ':':
		return first(t, i, text.urlPassword, text.field, text.header)
	case '=':
		return t.assignment(i)
	case '-':
		return t.pem(i)
	case 'B', 'b':
		return first(t, i, text.bearer, text.basic)
	}
	var f found
	for _, tok := range tokensBy[t.b[i]] {
		if f = t.token(i, tok); f.verdict != miss {
			break
		}
	}
	return f
}

func first(t text, i int, rules ...func(text, int) found) found {
	for _, rule := range rules {
		if f := rule(t, i); f.verdict != miss {
			return f
		}
	}
	return found{}
}

// token is a kind of credential that is known by its prefix.
type token struct {
	prefix string
	class  *class
	// enough says whether the bytes after the prefix make it a credential. It
	// must stay true for a longer run that begins with the same bytes.
	enough func(run []byte) bool
	exact  int // if set, the run has just this length
}

// window is how much of a run is looked at to decide; enough never needs more.
const window = 64

// tokens are the shapes, in order of precedence.
var tokens = []token{
	{prefix: "sk-ant-", class: &wordClass, enough: atLeast(16)},
	{prefix: "sk-", class: &wordClass, enough: looksRandom},
	{prefix: "sk_live_", class: &alnum, enough: atLeast(16)},
	{prefix: "sk_test_", class: &alnum, enough: atLeast(16)},
	{prefix: "rk_live_", class: &alnum, enough: atLeast(16)},
	{prefix: "ghp_", class: &alnum, enough: atLeast(20)},
	{prefix: "gho_", class: &alnum, enough: atLeast(20)},
	{prefix: "ghu_", class: &alnum, enough: atLeast(20)},
	{prefix: "ghs_", class: &alnum, enough: atLeast(20)},
	{prefix: "ghr_", class: &alnum, enough: atLeast(20)},
	{prefix: "github_pat_", class: &wordClass, enough: atLeast(20)},
	{prefix: "glpat-", class: &wordClass, enough: atLeast(16)},
	{prefix: "gsk_", class: &alnum, enough: atLeast(24)},
	{prefix: "hf_", class: &alnum, enough: atLeast(24)},
	{prefix: "npm_", class: &alnum, enough: atLeast(30)},
	{prefix: "xoxa-", class: &wordClass, enough: longWithDigit},
	{prefix: "xoxb-", class: &wordClass, enough: longWithDigit},
	{prefix: "xoxe-", class: &wordClass, enough: longWithDigit},
	{prefix: "xoxp-", class: &wordClass, enough: longWithDigit},
	{prefix: "xoxr-", class: &wordClass, enough: longWithDigit},
	{prefix: "xoxs-", class: &wordClass, enough: longWithDigit},
	{prefix: "AIza", class: &wordClass, enough: atLeast(30)},
	{prefix: "AKIA", class: &upperClass, exact: 16},
	{prefix: "ASIA", class: &upperClass, exact: 16},
}

var tokensBy = func() (by [256][]token) {
	for _, t := range tokens {
		by[t.prefix[0]] = append(by[t.prefix[0]], t)
	}
	by['e'] = append(by['e'], token{prefix: "eyJ"})
	return by
}()

// token matches one kind at i. The prefix goes with the rest.
func (t text) token(i int, tok token) found {
	at, v := t.literal(i, tok.prefix)
	switch {
	case v != hit:
		return t.orShort(v)
	case tok.class == nil:
		return t.jwt(i, at)
	case tok.exact > 0:
		return t.exact(i, at, tok)
	}
	run := t.run(at, tok.class, window)
	if tok.enough(run) {
		return found{hit, i, at + len(run), Mark, classTail{tok.class}}
	}
	return t.grow(at, run, window)
}

func (t text) exact(i, at int, tok token) found {
	run := t.run(at, tok.class, tok.exact)
	end := at + len(run)
	switch {
	case len(run) < tok.exact:
		return t.grow(at, run, tok.exact)
	case end == len(t.b) && !t.eof:
		return found{verdict: undecided}
	case end < len(t.b) && alnum[t.b[end]]:
		return found{}
	}
	return found{hit, i, end, Mark, nil}
}

// maxHeader bounds the first part of a JWT: beyond it, base64 that begins with
// eyJ is taken for data (an inline source map, say).
const maxHeader = 4096

// jwt matches "eyJ…" . "…" with whatever parts follow; at is after eyJ. A run
// without a dot is data, in which no JWT begins: with the miss, to is its end.
func (t text) jwt(i, at int) found {
	if i < t.noJWT {
		return found{}
	}
	head := t.run(at, &wordClass, maxHeader)
	dot := at + len(head)
	if dot == len(t.b) && !t.eof && len(head) < maxHeader {
		return found{verdict: undecided}
	}
	if dot == len(t.b) || len(head) == maxHeader || t.b[dot] != '.' {
		return found{to: dot}
	}
	body := t.run(dot+1, &wordClass, 8)
	if len(head) < 6 || len(body) < 8 {
		return t.grow(dot+1, body, 8)
	}
	return found{hit, i, dot + 9, Mark, classTail{&jwtClass}}
}

// scheme matches an authorization scheme and the spaces after it.
func (t text) scheme(i int, name string) (at int, v verdict) {
	at, v = t.literalFold(i, name)
	if v != hit {
		return at, v
	}
	n := len(t.run(at, &spaceClass, 4))
	switch {
	case at+n == len(t.b):
		return 0, undecided
	case n == 0:
		return 0, miss
	}
	return at + n, hit
}

// bearer matches the token after "Bearer ".
func (t text) bearer(i int) found {
	at, v := t.scheme(i, "bearer")
	if v != hit {
		return t.orShort(v)
	}
	run := t.run(at, &bearerClass, window)
	if enoughBearer(run) {
		return found{hit, at, at + len(run), Mark, classTail{&bearerClass}}
	}
	return t.grow(at, run, window)
}

// maxBasic bounds the encoded user name of basic authorization.
const maxBasic = 512

// basic matches what follows "Basic " if it decodes to user:password.
func (t text) basic(i int) found {
	at, v := t.scheme(i, "basic")
	if v != hit {
		return t.orShort(v)
	}
	run := t.run(at, &base64Class, maxBasic)
	var plain [maxBasic]byte
	groups := len(run) &^ 3
	n, _ := base64.RawStdEncoding.Decode(plain[:], run[:groups])
	v = userName(plain[:n])
	if v == undecided && at+len(run) < len(t.b) || t.eof { // the chars after the last group count
		m, _ := base64.RawStdEncoding.Decode(plain[n:], run[groups:])
		v = userName(plain[:n+m])
	}
	if v == hit {
		return found{hit, at, at + len(run), Mark, classTail{&paddedClass}}
	}
	if v == miss {
		return found{}
	}
	return t.grow(at, run, maxBasic)
}

// userName looks for the colon after a user name in printable ASCII.
func userName(plain []byte) verdict {
	for _, c := range plain {
		if c == ':' {
			return hit
		}
		if c < ' ' || c > '~' {
			return miss
		}
	}
	return undecided
}

const (
	maxUser     = 256
	maxPassword = 1024 // and host
)

// urlPassword matches the password in scheme://user:password@ at the colon.
func (t text) urlPassword(i int) found {
	if i == 0 || !alnum[t.b[i-1]] {
		return found{}
	}
	at, v := t.literal(i, "://")
	if v == miss {
		at, v = t.literal(i, `:\/\/`)
	}
	if v != hit {
		return t.orShort(v)
	}
	colon, v := t.until(at, &userClass, maxUser)
	if v != hit || t.b[colon] != ':' {
		return t.orShort(v)
	}
	run := t.run(colon+1, &passwordClass, maxPassword)
	if colon+1+len(run) == len(t.b) && !t.eof || len(run) == maxPassword {
		return t.grow(colon+1, run, maxPassword)
	}
	n := bytes.LastIndexByte(run, '@') // some write an @ in the password as it is
	if n < 0 || placeholder(run[:n]) {
		return found{}
	}
	return found{hit, colon + 1, colon + 1 + n, Mark, nil}
}

// pem matches a private key block from its first line on.
func (t text) pem(i int) found {
	at, v := t.literal(i, "-----BEGIN ")
	if v != hit {
		return t.orShort(v)
	}
	end, v := t.until(at, &labelClass, maxLabel)
	if v != hit || !privateLabel(t.b[at:end]) {
		return t.orShort(v)
	}
	if at, v = t.literal(end, "-----"); v != hit {
		return t.orShort(v)
	}
	return t.pemBody(i, at)
}

const maxLabel = 48

func privateLabel(name []byte) bool {
	return bytes.HasSuffix(name, []byte("PRIVATE KEY")) || bytes.HasSuffix(name, []byte("PRIVATE KEY BLOCK"))
}

// pemBody wants a line end after the marker, or at least 16 chars of base64
// after spaces: prose names the marker, too.
func (t text) pemBody(i, at int) found {
	block := found{hit, i, at, Mark, &pemTail{}}
	spaces := t.run(at, &spaceClass, 4)
	at += len(spaces)
	if at == len(t.b) {
		return t.short()
	}
	if t.b[at] == '\n' || t.b[at] == '\r' {
		return block
	}
	if slashes := t.run(at, &slashClass, maxSlashes); len(slashes) > 0 {
		at += len(slashes)
		if at == len(t.b) {
			return t.short()
		}
		if t.b[at] == 'n' || t.b[at] == 'r' {
			return block
		}
		return found{}
	}
	if len(spaces) == 0 {
		return found{}
	}
	body := t.run(at, &base64Class, 16)
	if len(body) == 16 {
		return block
	}
	return t.grow(at, body, 16)
}

// placeholder reports whether a value is a variable, a template's hole, dots
// or stars: nothing that anybody could use. It looks at two bytes.
func placeholder(v []byte) bool {
	if len(v) == 0 {
		return true
	}
	var next byte
	if len(v) > 1 {
		next = v[1]
	}
	switch v[0] {
	case '<', '{', '[', '(', '`':
		return true
	case '$':
		return next == '{' || next == '(' || next == '_' || alnum[next] && !digit(next)
	case '%':
		return next == 's' || next == 'v' || next == '(' || next == '{'
	case '*', '.':
		return next == v[0]
	}
	return false
}

func atLeast(n int) func([]byte) bool {
	return func(run []byte) bool { return len(run) >= n }
}

// looksRandom tells sk-… keys from CSS classes, SSH algorithms and the like: one
// word of 20 bytes, or 20 bytes with digits and capitals or with a word of 12
// that has many digits.
func looksRandom(run []byte) bool {
	digits, upper, word, longest := 0, 0, 0, 0
	for i, c := range run {
		word++
		switch {
		case digit(c):
			digits++
		case capital(c):
			upper++
		case !alnum[c]:
			word = 0
		}
		longest = max(longest, word)
		if longest >= 20 || i >= 19 && digits > 0 && (upper > 0 || digits > 3 && longest >= 12) {
			return true
		}
	}
	return false
}

func longWithDigit(run []byte) bool {
	return len(run) >= 10 && bytes.ContainsAny(run, "0123456789")
}

// enoughBearer tells tokens from the words that may follow "bearer": 16 bytes
// with a digit, or 32 bytes with a capital.
func enoughBearer(run []byte) bool {
	digits, upper := 0, 0
	for i, c := range run {
		if digit(c) {
			digits++
		}
		if capital(c) {
			upper++
		}
		if i >= 15 && digits > 0 || i >= 31 && upper > 0 {
			return true
		}
	}
	return false
}
