package eventlog

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strings"
)

// A Key names a session of a tenant.
type Key struct {
	Tenant  string
	Session string
}

func (k Key) String() string { return k.Tenant + "/" + k.Session }

// Compare orders keys by tenant, then session.
func (k Key) Compare(o Key) int {
	return cmp.Or(strings.Compare(k.Tenant, o.Tenant), strings.Compare(k.Session, o.Session))
}

// token writes an id as one subject token and key of a KV bucket. Letters,
// digits, - and _ stand for themselves, every other byte is =XX. This is the
// one place where ids from outside meet subjects.
func token(id string) string {
	if plain(id) {
		return id
	}
	var b strings.Builder
	for i := range len(id) {
		if c := id[i]; plainByte(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

func plain(id string) bool {
	for i := range len(id) {
		if !plainByte(id[i]) {
			return false
		}
	}
	return true
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// untoken reads back what token wrote.
func untoken(t string) (string, error) {
	if !strings.Contains(t, "=") {
		return t, nil
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		if t[i] != '=' {
			b.WriteByte(t[i])
			continue
		}
		var c byte
		if i+2 >= len(t) {
			return "", fmt.Errorf("token %q ends in an escape", t)
		}
		if _, err := fmt.Sscanf(t[i+1:i+3], "%02X", &c); err != nil {
			return "", fmt.Errorf("token %q: %w", t, err)
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), nil
}

// suffix is <tenant>.<session>, the tail of every subject of the session.
func (k Key) suffix() string { return token(k.Tenant) + "." + token(k.Session) }

// parseKey reads the key from the two tokens.
func parseKey(tenant, session string) (Key, error) {
	t, err := untoken(tenant)
	if err != nil {
		return Key{}, err
	}
	s, err := untoken(session)
	return Key{t, s}, err
}

// partition is FNV-1a 32 of the encoded tenant/session, mod p.
func (k Key) partition(p int) int {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%s", token(k.Tenant), token(k.Session))
	return int(h.Sum32() % uint32(p))
}
