package artifacts

import (
	"fmt"
	"mime"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// inlineTypes are shown by browsers without running anything. What is not
// here is downloaded: HTML, SVG, XML, PDF and every type not thought of.
var inlineTypes = map[string]bool{
	"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true, "image/avif": true, "image/bmp": true,
	"audio/mpeg": true, "audio/mp4": true, "audio/ogg": true, "audio/wav": true, "audio/webm": true, "audio/flac": true, "audio/aac": true,
	"video/mp4": true, "video/webm": true, "video/ogg": true,
	"text/plain": true, "text/csv": true, "text/markdown": true,
	"application/json": true, "application/x-ndjson": true,
}

// presentation returns the Content-Type and Content-Disposition under which
// an artifact can be served from an origin that has something to lose.
func presentation(m Meta) (mediaType, disposition string) {
	mediaType, inline := safeType(m.MediaType)
	kind := "attachment"
	if inline {
		kind = "inline"
	}
	return mediaType, kind + dispositionName(cleanName(m.Name))
}

// safeType returns the type to send. Scripts and styles go out as plain text:
// with nosniff no page can load them as what they are, whatever the
// disposition says.
func safeType(declared string) (mediaType string, inline bool) {
	base, params, err := mime.ParseMediaType(declared)
	if err != nil || !strings.Contains(base, "/") {
		return octetStream, false
	}
	if isScript(base) {
		return "text/plain; charset=utf-8", false
	}
	charset := params["charset"]
	if charset == "" && strings.HasPrefix(base, "text/") {
		charset = "utf-8"
	}
	if charset != "" {
		if t := mime.FormatMediaType(base, map[string]string{"charset": charset}); t != "" {
			return t, inlineTypes[base]
		}
	}
	return base, inlineTypes[base]
}

func isScript(base string) bool {
	return base == "text/css" || strings.Contains(base, "javascript") || strings.Contains(base, "ecmascript") ||
		strings.Contains(base, "jscript") || strings.Contains(base, "livescript")
}

const maxFileName = 200 // bytes; leaves room for " (2)" and the like in 255

// cleanName makes a name fit to be a file's: the last element of a path,
// without characters that are invisible or reverse the reading direction, no
// leading or trailing dots or blanks, not too long, never empty.
func cleanName(name string) string {
	name = strings.ReplaceAll(strings.ToValidUTF8(name, "_"), `\`, "/")
	name = path.Base("/" + name)
	name = strings.Map(fileRune, name)
	name = strings.Trim(name, ". ")
	if name == "" || name == "/" || name == "_" {
		return "artifact"
	}
	return shorten(name)
}

// fileRune keeps the joiners that Persian, Hindi and emoji need.
func fileRune(r rune) rune {
	const joiner, nonJoiner = '\u200d', '\u200c'
	switch {
	case r == joiner || r == nonJoiner:
		return r
	case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r):
		return -1
	case unicode.IsSpace(r):
		return ' '
	case strings.ContainsRune(`/:*?"<>|`, r):
		return '_'
	}
	return r
}

// shorten cuts the stem, at a rune, and keeps a sensible extension.
func shorten(name string) string {
	if len(name) <= maxFileName {
		return name
	}
	ext := path.Ext(name)
	if len(ext) > 20 {
		ext = ""
	}
	cut := maxFileName - len(ext)
	for !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + ext
}

// dispositionName is the file name as RFC 6266 wants it: filename for all, and
// filename* (RFC 8187) where that is not the whole truth.
func dispositionName(name string) string {
	plain := asciiName(name)
	s := fmt.Sprintf(`; filename="%s"`, plain)
	if plain != name {
		s += "; filename*=UTF-8''" + extValue(name)
	}
	return s
}

// asciiName replaces what a quoted string cannot hold or what browsers decode.
func asciiName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' || r == '%' {
			return '_'
		}
		return r
	}, name)
}

// extValue percent-encodes all bytes but the attr-chars of RFC 8187.
func extValue(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) || strings.IndexByte("!#$&+-.^_`|~", c) >= 0) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
