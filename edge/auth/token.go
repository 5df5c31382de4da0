package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/catalog"
)

// A Grant lets whoever presents its token follow one session, or one run, where
// a client cannot send a key: a page's EventSource or WebSocket. It holds until it
// expires, or the key that asked for it is revoked. A stream that it has opened goes on
// after the one, and ends after the other.
type Grant struct {
	Tenant   string `json:"t"`
	Session  string `json:"s,omitempty"` // with all its runs
	Run      string `json:"r,omitempty"` // this run alone
	Commands bool   `json:"c,omitempty"` // may cancel, approve and so on over its WebSocket
	Key      string `json:"k,omitempty"` // id of the key that asked for it; empty: there was none, or an old version made the token
	Name     string `json:"n,omitempty"` // of that key
	Expires  int64  `json:"e"`           // Unix seconds
}

// tokenPrefix tells tokens from keys.
const tokenPrefix = "rlt_"

// Sign returns the token of a grant. Any process with the secret can read it.
func (g Grant) Sign(secret []byte) string {
	body, _ := json.Marshal(g) // of strings and numbers
	text := base64.RawURLEncoding.EncodeToString(body)
	return tokenPrefix + text + "." + base64.RawURLEncoding.EncodeToString(seal(secret, text))
}

func seal(secret []byte, text string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// ReadToken returns the grant of a token that was signed with a secret and has
// not expired.
func ReadToken(secret []byte, token string, now time.Time) (g Grant, ok bool) {
	text, mark, _ := strings.Cut(strings.TrimPrefix(token, tokenPrefix), ".")
	sum, err := base64.RawURLEncoding.DecodeString(mark)
	if err != nil || !hmac.Equal(sum, seal(secret, text)) {
		return Grant{}, false
	}
	body, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(body, &g) != nil || now.Unix() >= g.Expires {
		return Grant{}, false
	}
	return g, true
}

// Reaches reports whether the caller may see a session (run is empty) or a run
// of it, as far as its grant goes.
func (c Caller) Reaches(session, run string) bool {
	switch g := c.Grant; {
	case g == nil:
		return true
	case g.Run != "":
		return g.Run == run
	default:
		return g.Session == session
	}
}

// Cookie is the name of the cookie that may hold a token.
const Cookie = "runlog_token"

// subprotocol carries a key or token among the subprotocols that a page offers:
// it can set no header.
const subprotocol = "bearer."

// Presented returns the key or token that a request for a stream brings: in a
// header, as subprotocol, in the query, or, last, in a cookie. Empty if there is none.
func Presented(r *http.Request) (secret string, byCookie bool) {
	if secret := bearer(r); secret != "" {
		return secret, false
	}
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			if secret, ok := strings.CutPrefix(strings.TrimSpace(name), subprotocol); ok {
				return secret, false
			}
		}
	}
	if secret := r.URL.Query().Get("access_token"); secret != "" {
		return secret, false
	}
	if c, err := r.Cookie(Cookie); err == nil && strings.HasPrefix(c.Value, tokenPrefix) {
		return c.Value, true
	}
	return "", false
}

// ErrToken: a token that is not valid, or not any more.
var ErrToken = errors.New("this token has expired, its API key was revoked, or it was issued elsewhere: ask for another one, POST /v1/tokens")

// Follower returns who wants to follow a stream and presents a key or a token:
// ErrUnauthorized, ErrToken, or catalog.ErrUnavailable if that cannot be found out
// now. The path says what it wants: see Caller.Reaches.
func (g *Gate) Follower(ctx context.Context, secret string) (Caller, error) {
	if open, err := g.isOpen(ctx); err != nil || open {
		return openCaller, err
	}
	switch {
	case secret == "":
		return Caller{}, ErrUnauthorized
	case !strings.HasPrefix(secret, tokenPrefix):
		return g.bySecret(ctx, catalog.HashKey(secret))
	case g.opts.Secret == nil:
		return Caller{}, ErrToken
	}
	key, err := g.opts.Secret(ctx)
	if err != nil {
		return Caller{}, err
	}
	grant, ok := ReadToken(key, secret, time.Now())
	if !ok || g.takenBack(ctx, grant) {
		return Caller{}, ErrToken
	}
	return Caller{Tenant: grant.Tenant, Key: grant.Key, Name: grant.Name, Grant: &grant}, nil
}

// takenBack reports whether the key that asked for a token is known not to be valid. While
// the catalog is away the token speaks for itself: it is short-lived, and what it opens is
// looked at when the catalog is back.
func (g *Gate) takenBack(ctx context.Context, grant Grant) bool {
	if grant.Key == "" {
		return false
	}
	_, err := g.byKey(ctx, grant.Key)
	return errors.Is(err, ErrUnauthorized)
}
