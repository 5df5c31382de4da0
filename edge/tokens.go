package edge

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/event"
)

// Limits of how long a token is good for.
const (
	tokenTTL    = 10 * time.Minute
	maxTokenTTL = time.Hour
)

type tokenRequest struct {
	SessionID string `json:"session_id"`
	RunID     string `json:"run_id"`
	TTL       string `json:"ttl"`      // a duration from 1s to 1h, default 10m
	Commands  bool   `json:"commands"` // may also cancel, approve and so on, over a WebSocket
	Cookie    bool   `json:"cookie"`   // set it as a cookie, too
}

type tokenAnswer struct {
	Token     string     `json:"token"`
	ExpiresAt event.Time `json:"expires_at"`
	SessionID string     `json:"session_id,omitempty"`
	RunID     string     `json:"run_id,omitempty"`
}

// postToken issues a token for the streams of one session or one run. Every edge
// takes it. Nothing is stored, so the session need not be there yet.
func (s *Server) postToken(w http.ResponseWriter, r *http.Request, c *call) error {
	var body tokenRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	ttl, err := body.check()
	if err != nil {
		return err
	}
	secret, err := s.secret.get(r.Context())
	if err != nil {
		return err
	}
	expires := time.Now().Add(ttl).Truncate(time.Second)
	token := auth.Grant{Tenant: c.who.Tenant, Session: body.SessionID, Run: body.RunID, Commands: body.Commands,
		Key: c.who.Key, Name: caller(c), Expires: expires.Unix()}.Sign(secret)
	c.note("session", body.SessionID)
	c.note("run", body.RunID)
	if body.Cookie {
		http.SetCookie(w, &http.Cookie{Name: auth.Cookie, Value: token, Path: "/v1/", Expires: expires, HttpOnly: true,
			SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")})
	}
	writeJSON(w, http.StatusCreated, tokenAnswer{token, event.At(expires), body.SessionID, body.RunID})
	return nil
}

func (t tokenRequest) check() (ttl time.Duration, err error) {
	if (t.SessionID == "") == (t.RunID == "") {
		return 0, bad("session_id", "a token is for one session or for one run: send session_id or run_id")
	}
	if err := event.CheckID("id", t.SessionID+t.RunID); err != nil {
		return 0, bad("session_id", "%s", err)
	}
	if t.TTL == "" {
		return tokenTTL, nil
	}
	if ttl, err = time.ParseDuration(t.TTL); err != nil || ttl < time.Second || ttl > maxTokenTTL {
		return 0, bad("ttl", "ttl: %q is not a duration from 1s to %s", t.TTL, maxTokenTTL)
	}
	return ttl, nil
}

// A lazySecret is what tokens are signed with, read once. Who waits for it waits no
// longer than one read takes, and all of them for the same.
type lazySecret struct {
	read func(context.Context, string) ([]byte, error)

	ask   singleflight.Group
	known atomic.Pointer[[]byte]
}

// secretTimeout is for one read.
const secretTimeout = 5 * time.Second

func (l *lazySecret) get(ctx context.Context) ([]byte, error) {
	if known := l.known.Load(); known != nil {
		return *known, nil
	}
	return together(ctx, &l.ask, secretTimeout, func(ctx context.Context) ([]byte, error) {
		secret, err := l.read(ctx, "tokens")
		if err == nil {
			l.known.Store(&secret)
		}
		return secret, err
	})
}
