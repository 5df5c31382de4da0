package edge

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// exposed are the headers that scripts of other origins may read.
const exposed = "Location, Content-Location, ETag, Content-Range, Accept-Ranges, Content-Disposition, Retry-After, " +
	"RateLimit, RateLimit-Policy, X-Request-Id, Runlog-Next-Cursor, Runlog-Run-Id, Runlog-Session-Id, Runlog-Trace-Id, Mcp-Session-Id, X-Vercel-AI-UI-Message-Stream"

// cors lets web pages of allowed origins call, and answers their preflights:
// then it returns true. Cookies are let through for pages of origins that are named;
// they only ever follow streams.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) (answered bool) {
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	preflight := r.Method == http.MethodOptions
	if origin != "" && s.allowed(origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", exposed)
		if slices.Contains(s.opts.Origins, origin) {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
		if preflight {
			h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS")
			h.Set("Access-Control-Max-Age", "7200")
			if want := r.Header.Get("Access-Control-Request-Headers"); want != "" {
				h.Set("Access-Control-Allow-Headers", want)
				h.Add("Vary", "Access-Control-Request-Headers")
			}
		}
	}
	if preflight {
		w.WriteHeader(http.StatusNoContent)
	}
	return preflight
}

// allowed reports whether pages of an origin may call. A key that a page must
// send protects by itself; where nobody needs one, any page that a user of this
// machine opens could start runs, so only pages of this machine may.
func (s *Server) allowed(origin string) bool {
	if len(s.opts.Origins) > 0 {
		return slices.Contains(s.opts.Origins, "*") || slices.Contains(s.opts.Origins, origin)
	}
	return !s.gate.Loopback() || isLocalOrigin(origin)
}

// checkLocal keeps foreign web pages away from an edge without keys: those that
// say so by Origin, and those that reach it by a name of their own.
func (s *Server) checkLocal(r *http.Request) error {
	if origin := r.Header.Get("Origin"); origin != "" && !s.allowed(origin) {
		return problem(http.StatusForbidden, event.CodeForbidden, "web pages of %s may not call an edge without API keys; create a key or allow the origin", origin)
	}
	if !isLocalHost(r.Host) {
		return problem(http.StatusForbidden, event.CodeForbidden, "an edge without API keys is called by IP address or a name without a dot, not as %q; create a key", r.Host)
	}
	return nil
}

func isLocalOrigin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	name := u.Hostname()
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback() || isLocalName(name)
}

// isLocalHost accepts addresses, localhost and names without a dot, as machines
// and containers have: a page can make its own name mean this machine, but no
// stranger can have an address or a name without a dot.
func isLocalHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	_, err := netip.ParseAddr(name)
	return err == nil || !strings.Contains(name, ".") || isLocalName(name)
}

func isLocalName(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
