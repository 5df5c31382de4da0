package redact

import "bytes"

// Bounds of what the rules look back at; together less than lookback.
const (
	maxKey   = 64
	maxBlank = 16
)

// field matches `"key": value` at the colon, with either quote, also inside a
// string (\"key\": …), if the key is sensitive.
func (t text) field(i int) found {
	key, q := t.keyBefore(i)
	if len(key) == 0 || !t.rules.sensitive(key) {
		return found{}
	}
	at := i + 1
	at += len(t.run(at, &blankClass, maxBlank))
	slashes := len(t.run(at, &slashClass, maxSlashes))
	if at+slashes == len(t.b) {
		return t.short()
	}
	c := t.b[at+slashes]
	switch {
	case quoteChar(c) && slashes == q.before:
		inside := at + slashes + 1
		return found{hit, inside, inside, Mark, quotedTail{quoting{c, slashes}}}
	case slashes > 0:
		return found{}
	case c == '{' || c == '[':
		return t.container(at, q)
	case c == '-' || digit(c):
		return found{hit, at, at, Mark, scalarTail{&numberClass, q}}
	case c == 't':
		return t.boolean(at, "true", q)
	case c == 'f':
		return t.boolean(at, "false", q)
	}
	return found{}
}

func quoteChar(c byte) bool { return c == '"' || c == '\'' }

// container matches an object or array by what follows its bracket: code has
// braces, too.
func (t text) container(at int, q quoting) found {
	open := t.b[at]
	inner := at + 1
	inner += len(t.run(inner, &blankClass, maxInner))
	inner += len(t.run(inner, &slashClass, maxSlashes))
	if inner == len(t.b) {
		return t.short()
	}
	c := t.b[inner]
	ok := c == q.char || c == open+2 // its closing bracket
	if open == '[' {
		ok = ok || c == '{' || c == '[' || c == '-' || digit(c) || c == 't' || c == 'f' || c == 'n'
	} else if q.before > 0 {
		ok = ok || c == 'n' || c == 'r' || c == 't' // escaped white space
	}
	if !ok {
		return found{}
	}
	return found{hit, at, at, Mark, &nestedTail{quoting: q}}
}

// maxInner bounds the white space after a bracket.
const maxInner = 256

// boolean matches a word that nothing lengthens.
func (t text) boolean(at int, word string, q quoting) found {
	end, v := t.literal(at, word)
	switch {
	case v != hit:
		return t.orShort(v)
	case end == len(t.b) && !t.eof:
		return found{verdict: undecided}
	case end < len(t.b) && (alnum[t.b[end]] || t.b[end] == '_'):
		return found{}
	}
	return found{hit, at, end, q.text(), nil}
}

// keyBefore is the quoted key that ends before the colon at i, and its quotes;
// nothing if there is none.
func (t text) keyBefore(i int) (key []byte, q quoting) {
	end := t.back(i, &blankClass, maxBlank) - 1
	if end < 0 || !quoteChar(t.b[end]) {
		return nil, q
	}
	char := t.b[end]
	slash := t.back(end, &slashClass, maxSlashes)
	first := t.back(slash, &keyClass, maxKey)
	q = quoting{char, end - slash}
	open := first - 1
	if open < 0 || t.b[open] != char || !q.known() {
		return nil, q
	}
	if open-t.back(open, &slashClass, maxSlashes) != q.before {
		return nil, q
	}
	return t.b[first:slash], q
}

var keyClass = classOf("..", &wordClass)

// known reports whether a JSON text has such quotes at some depth.
func (q quoting) known() bool {
	switch q.before {
	case 0:
		return true
	case 1, 3, 7:
		return q.char == '"'
	}
	return false
}

// back is where the run of class bytes before i begins, at most limit before.
func (t text) back(i int, c *class, limit int) int {
	for n := 0; n < limit && i > 0 && c[t.b[i-1]]; n++ {
		i--
	}
	return i
}

// header matches `Cookie: a=b` and `X-Api-Key: value` at the colon.
func (t text) header(i int) found {
	begin := t.back(i, &wordClass, maxKey)
	name := t.b[begin:i]
	if len(name) == 0 || name[0] == '-' || !t.rules.headerName(name) {
		return found{}
	}
	at := i + 1
	at += len(t.run(at, &spaceClass, maxBlank))
	if hasSuffixFold(name, "cookie") {
		return t.cookies(at)
	}
	if hasSuffixFold(name, "authorization") {
		if word, v := t.until(at, &letterClass, maxBlank); v == undecided {
			return t.short()
		} else if v == hit && word > at && t.b[word] == ' ' {
			at = word + 1
		}
	}
	run := t.run(at, &bearerClass, window)
	if longWithDigit(run) {
		if bytes.HasPrefix(run, []byte("AWS4-HMAC-")) { // a scheme; what follows is no secret
			return found{}
		}
		return found{hit, at, at + len(run), Mark, classTail{&bearerClass}}
	}
	return t.grow(at, run, window)
}

var letterClass = classOf("azAZ")

// cookies matches the value of a cookie header: name=value and so on.
func (t text) cookies(at int) found {
	eq, v := t.until(at, &keyClass, maxKey)
	if v != hit || eq == at || t.b[eq] != '=' {
		return t.orShort(v)
	}
	return found{hit, at, eq, Mark, classTail{&lineClass}}
}

// headerName reports whether a bare name before a colon is taken for that of a
// header with a secret: prose has colons, too.
func (r *rules) headerName(name []byte) bool {
	switch foldedName(string(name)) {
	case "cookie", "setcookie", "authorization", "proxyauthorization":
		return true
	}
	for _, c := range name {
		if c == '-' {
			return r.sensitive(name)
		}
	}
	return false
}

// assignment matches NAME=value, --name=value and ?name=value at the equals
// sign.
func (t text) assignment(i int) found {
	key, values := t.nameBefore(i)
	if values == nil || !t.rules.sensitive(key) {
		return found{}
	}
	at := i + 1
	slashes := len(t.run(at, &slashClass, maxSlashes))
	if at+slashes == len(t.b) {
		return t.short()
	}
	c := t.b[at+slashes]
	q := quoting{c, slashes}
	switch {
	case c == '=':
		return found{}
	case quoteChar(c) && q.known() && values == &valueClass:
		return t.quotedValue(at+slashes+1, q)
	case slashes > 0 || !values[c]:
		return found{}
	}
	if at+1 == len(t.b) && !t.eof {
		return found{verdict: undecided}
	}
	if placeholder(t.b[at:min(at+2, len(t.b))]) {
		return found{}
	}
	return found{hit, at, at + 1, Mark, classTail{values}}
}

// quotedValue matches a quoted value whose inside begins at at. A quote that a
// comma or the like follows is taken for the end of a string around it all.
func (t text) quotedValue(at int, q quoting) found {
	if at+1 >= len(t.b) {
		if !t.eof {
			return found{verdict: undecided}
		}
		if at == len(t.b) {
			return found{}
		}
	}
	if c := t.b[at]; blankClass[c] || c == ',' || c == ':' || c == '}' || c == ']' || c == '\\' {
		return found{}
	}
	if placeholder(t.b[at:min(at+2, len(t.b))]) {
		return found{}
	}
	return found{hit, at, at, Mark, quotedTail{q}}
}

// nameBefore is the name that ends at i and the class of the values it may
// have; no class if it is not one that is assigned to.
func (t text) nameBefore(i int) ([]byte, *class) {
	begin := t.back(i, &wordClass, maxKey)
	before := byte(' ')
	if begin > 0 {
		before = t.b[begin-1]
	}
	name := t.b[begin:i]
	if before == '\\' {
		name, before = unescapeStart(name)
	}
	switch {
	case len(name) == 0:
		return nil, nil
	case before == '?' || before == '&' || before == ';':
		return name, &queryClass
	case len(name) > 2 && name[0] == '-' && name[1] == '-':
		return name, &valueClass
	case shouted(name) && before != '.' && before != '$':
		return name, &valueClass
	}
	return nil, nil
}

// unescapeStart takes the letters of a JSON escape (\n, \u0026) off the front
// of a name and returns what the escape stands for.
func unescapeStart(name []byte) ([]byte, byte) {
	switch {
	case len(name) > 5 && string(name[:5]) == "u0026":
		return name[5:], '&'
	case len(name) > 1 && (name[0] == 'n' || name[0] == 't' || name[0] == 'r'):
		return name[1:], ' '
	}
	return name, '\\'
}

// shouted reports whether a name is written like an environment variable.
func shouted(name []byte) bool {
	for i, c := range name {
		if c != '_' && !upperClass[c] || i == 0 && digit(c) {
			return false
		}
	}
	return true
}
