package edge

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/event"
)

// identify finds out whose request it is, where that matters.
func (s *Server) identify(r *http.Request, c *call, needsKey bool) error {
	if !needsKey {
		return nil
	}
	who, err := s.gate.Identify(r)
	if err != nil {
		return err
	}
	c.who = who
	if who.Open {
		return s.checkLocal(r)
	}
	return nil
}

// follower identifies those who want a stream: by key, token or cookie. Clients
// that come as a WebSocket may also say who they are in their first message.
func (s *Server) follower(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, c *call) error {
		if isWebSocket(r) {
			return s.socket(w, r, c, h)
		}
		secret, byCookie := auth.Presented(r)
		if err := s.identifyFollower(r, c, secret, byCookie); err != nil {
			return err
		}
		if err := s.limitRate(w, c); err != nil {
			return err
		}
		return h(w, r, c)
	}
}

// identifyFollower finds out who presents a key or a token for a stream.
func (s *Server) identifyFollower(r *http.Request, c *call, secret string, byCookie bool) error {
	who, err := s.gate.Follower(r.Context(), secret)
	if err != nil {
		return err
	}
	c.who = who
	if who.Open {
		return s.checkLocal(r)
	}
	if byCookie {
		return s.checkCookie(r)
	}
	return nil
}

// checkCookie keeps pages out that a browser sends the user's cookie for without
// being asked: only pages of the edge's own host and of origins that are named.
func (s *Server) checkCookie(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(s.opts.Origins, origin) {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && strings.EqualFold(u.Host, r.Host) {
		return nil
	}
	return problem(http.StatusForbidden, event.CodeForbidden, "web pages of %s may not use a cookie here; allow the origin, or send a token", origin)
}
