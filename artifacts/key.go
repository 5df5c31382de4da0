package artifacts

import (
	"fmt"
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Key names an artifact inside its tenant. Each half is one path element of 1
// to 200 bytes: letters, marks and digits of any script and - _ . ~ @ + = , :
// but neither "." nor "..". Nothing else is accepted, because stores clean
// paths: two keys must never reach one object.
type Key struct {
	Tenant string
	ID     string
}

// Meta is what a person sees of an artifact.
type Meta struct {
	Name      string // file name to offer, in any script, up to 255 bytes; may be empty
	MediaType string // RFC 9110 media type, up to 127 bytes; empty means application/octet-stream
}

const (
	maxKeyBytes   = 200
	maxNameBytes  = 255
	maxMediaBytes = 127
	octetStream   = "application/octet-stream"
)

func (k Key) String() string { return k.Tenant + "/" + k.ID }

// Check returns ErrBadKey with the reason if k can name no artifact.
func (k Key) Check() error {
	if err := checkElement(k.Tenant); err != nil {
		return fmt.Errorf("%w: tenant %q %w", ErrBadKey, clip(k.Tenant, maxKeyBytes), err)
	}
	if err := checkElement(k.ID); err != nil {
		return fmt.Errorf("%w: id %q %w", ErrBadKey, clip(k.ID, maxKeyBytes), err)
	}
	return nil
}

func checkElement(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("is empty")
	case len(s) > maxKeyBytes:
		return fmt.Errorf("has %d bytes, the limit is %d", len(s), maxKeyBytes)
	case s == "." || s == "..":
		return fmt.Errorf("is a relative path")
	case !utf8.ValidString(s):
		return fmt.Errorf("is not UTF-8")
	}
	for _, r := range s {
		if !keyRune(r) {
			return fmt.Errorf("contains %q; use letters, digits and - _ . ~ @ + = , :", r)
		}
	}
	return nil
}

func keyRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.~@+=,:", r)
}

// normalized checks m and fills in the default media type.
func (m Meta) normalized() (Meta, error) {
	if m.MediaType == "" {
		m.MediaType = octetStream
	}
	if len(m.Name) > maxNameBytes || !utf8.ValidString(m.Name) {
		return m, fmt.Errorf("%w: name %q must be UTF-8 of at most %d bytes", ErrBadMeta, clip(m.Name, maxNameBytes), maxNameBytes)
	}
	if strings.ContainsFunc(m.Name, unicode.IsControl) {
		return m, fmt.Errorf("%w: name %q contains control characters", ErrBadMeta, m.Name)
	}
	base, _, err := mime.ParseMediaType(m.MediaType)
	if err != nil || !strings.Contains(base, "/") || len(m.MediaType) > maxMediaBytes || !ascii(m.MediaType) {
		return m, fmt.Errorf("%w: media type %q must look like type/subtype and have at most %d bytes", ErrBadMeta, clip(m.MediaType, maxMediaBytes), maxMediaBytes)
	}
	return m, nil
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
