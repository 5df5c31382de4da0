package redact

import (
	"math/bits"
	"strings"
)

// sensitiveEnds are the ends of names, folded, whose values are secret.
var sensitiveEnds = []string{
	"password", "passwords", "passwd", "passphrase", "passcode", "passwordhash",
	"pwd", "dbpass", "smtppass", "mailpass", "mysqlpass", "pgpass",
	"secret", "secrets", "token", "authorization", "cookie", "cookies",
	"credential", "credentials", "apikey", "apikeys", "privatekey", "privatekeys",
	"accesskey", "secretkey", "signingkey", "encryptionkey", "masterkey",
	"accountkey", "subscriptionkey", "sshkey", "authkey", "jwt",
}

// harmlessBefore are words before "token" that make it a place in a list, a
// counter or a piece of text.
var harmlessBefore = words(`next page continuation sync start end stop pagination
	cursor resume progress max min first last per input output prompt completion
	total cached reasoning eos bos pad unk sep cls mask special`)

// askingFirst are first words of a name that asks or tells about a secret.
var askingFirst = words("is has needs requires supports show hide allow max min num count")

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// folded is a name without its spelling: letters and digits in lower case, and
// where its words begin (bit i for letters[i]).
type folded struct {
	letters [maxKey]byte
	n       int
	starts  uint64
}

// fold takes the last 64 letters of a name apart: api_key, api-key, apiKey,
// APIKey and API_KEY are all the words api and key.
func fold[T string | []byte](name T) (f folded) {
	if len(name) > maxKey {
		name = name[len(name)-maxKey:]
	}
	var last byte // before name[i]
	for i := 0; i < len(name); i++ {
		c := name[i]
		if alnum[c] {
			var next byte
			if i+1 < len(name) {
				next = name[i+1]
			}
			if startsWord(last, c, next) {
				f.starts |= 1 << f.n
			}
			f.letters[f.n] = lower(c)
			f.n++
		}
		last = c
	}
	return f
}

func startsWord(last, c, next byte) bool {
	switch {
	case !alnum[last]:
		return true
	case !capital(c):
		return false
	}
	return !capital(last) || next >= 'a' && next <= 'z'
}

func capital(c byte) bool { return c >= 'A' && c <= 'Z' }

// foldedName is the whole of a short name, folded.
func foldedName(name string) string {
	f := fold(name)
	return string(f.letters[:f.n])
}

// sensitive reports whether the value of a key is to be hidden.
func (r *rules) sensitive(key []byte) bool {
	f := fold(key)
	if r.keys[string(f.letters[:f.n])] {
		return true
	}
	for f.n > 0 && digit(f.letters[f.n-1]) { // password2
		f.n--
	}
	name := f.letters[:f.n]
	for _, end := range sensitiveEnds {
		if at := len(name) - len(end); at >= 0 && string(name[at:]) == end {
			return !f.harmless(at, end)
		}
	}
	return false
}

// harmless judges a name by what stands before its end, which begins at at.
func (f *folded) harmless(at int, end string) bool {
	rest := f.letters[:at]
	if end == "pwd" && (at == 0 || string(rest) == "old") { // the working directory
		return true
	}
	if at == 0 {
		return false
	}
	if end == "token" && harmlessBefore[string(f.wordBefore(at))] {
		return true
	}
	return askingFirst[string(f.firstWord(at))]
}

// wordBefore is the last word of what comes before at.
func (f *folded) wordBefore(at int) []byte {
	starts := f.starts & (1<<at - 1)
	return f.letters[max(0, bits.Len64(starts)-1):at]
}

// firstWord is the first word of what comes before at.
func (f *folded) firstWord(at int) []byte {
	starts := f.starts &^ 1 & (1<<at - 1)
	if starts == 0 {
		return f.letters[:at]
	}
	return f.letters[:bits.TrailingZeros64(starts)]
}

func hasSuffixFold(b []byte, s string) bool {
	return len(b) >= len(s) && strings.EqualFold(string(b[len(b)-len(s):]), s)
}
