package redact

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxForm is the longest form searched for in one piece, in bytes. A longer
// one is searched for in pieces, so that a Stream need not keep it all back.
const maxForm = 1024

// forms lists the ways in which a secret value is looked for, without
// duplicates.
func forms(value string) []string {
	var all []string
	if utf8.ValidString(value) { // else it would cut runes in two
		all = append(all, value)
		all = append(all, jsonForms(value)...)
	}
	all = append(all, urlForms(value)...)
	all = append(all, base64Forms(value)...)
	seen := map[string]bool{}
	var out []string
	for _, f := range all {
		for _, piece := range pieces(f) {
			if len(piece) >= minSecret && !seen[piece] {
				seen[piece] = true
				out = append(out, piece)
			}
		}
	}
	return out
}

// jsonForms is the inside of the JSON strings that hold value, and of those
// that hold JSON that holds it: as Go, JavaScript, PHP and Python write them.
func jsonForms(value string) []string {
	plain := quoteJSON(value, "", false)
	once := []string{
		plain,
		quoteJSON(value, "<>&", false),
		quoteJSON(value, "", true),
		strings.ReplaceAll(plain, "/", `\/`),
	}
	all := once
	for _, f := range once {
		all = append(all, quoteJSON(f, "", false))
	}
	return all
}

// quoteJSON escapes s for a JSON string: quotes, backslashes and controls,
// the bytes in also as \u00XX, and with ascii everything beyond ASCII.
func quoteJSON(s, also string, ascii bool) string {
	var b strings.Builder
	for _, r := range s {
		short := strings.IndexRune("\"\\\b\f\n\r\t", r)
		switch {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`"\bfnrt`[short])
		case r > 0xffff && ascii:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r < ' ' || r > '~' && ascii || strings.ContainsRune(also, r) || r == 0x2028 || r == 0x2029:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// urlForms percent-encodes value as the common libraries do, which differ in
// what they leave alone and in the case of the digits.
func urlForms(value string) []string {
	var all []string
	for _, keep := range []string{"", "/", "!'()*", "$&+:=@"} {
		f := percent(value, keep)
		all = append(all, f, lowerPercent(f))
	}
	f := url.QueryEscape(value)
	return append(all, f, lowerPercent(f))
}

func percent(s, keep string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if alnum[c] || strings.IndexByte("-_.~", c) >= 0 || strings.IndexByte(keep, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

func lowerPercent(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			b[i+1], b[i+2] = lower(b[i+1]), lower(b[i+2])
			i += 2
		}
	}
	return string(b)
}

// base64Forms is what value always looks like inside base64, whatever stands
// before it (three alignments) and after it, plus value encoded on its own.
func base64Forms(value string) []string {
	var all []string
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		all = append(all, enc.EncodeToString([]byte(value)), enc.WithPadding(base64.NoPadding).EncodeToString([]byte(value)))
		for before := range 3 {
			s := enc.EncodeToString(append(make([]byte, before), value...))
			first := (before*8 + 5) / 6            // the chars that also hold bits from before
			whole := (before + len(value)) * 8 / 6 // and without the last, if it waits for more bits
			all = append(all, s[first:whole])
		}
	}
	return all
}

// pieces cuts a long form at rune boundaries; the last piece is as long as the
// others and overlaps the one before.
func pieces(form string) []string {
	var out []string
	for at := 0; ; {
		if len(form)-at <= maxForm {
			return append(out, form[runeStart(form, max(0, min(at, len(form)-maxForm))):])
		}
		end := runeStart(form, at+maxForm)
		out = append(out, form[at:end])
		at = end
	}
}

// runeStart is i, or a little less so that no rune is cut.
func runeStart(s string, i int) int {
	for back := i; back > 0 && back > i-utf8.UTFMax; back-- {
		if utf8.RuneStart(s[back]) {
			return back
		}
	}
	return i
}
