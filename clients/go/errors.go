package runlog

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// An Error is an edge's refusal: problem+json of RFC 9457, or what could be read
// of another answer.
type Error struct {
	Status int        `json:"status"` // HTTP status
	Code   event.Code `json:"code"`   // empty if the answer was no runlog problem
	Title  string     `json:"title"`
	Detail string     `json:"detail"`
	Head   event.Seq  `json:"head"` // with cursor_ahead: the last event there is

	RetryAfter time.Duration `json:"-"` // what the server asked for; 0 if nothing
}

func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if e.Code == "" {
		return fmt.Sprintf("the server answered %d: %s", e.Status, text)
	}
	return fmt.Sprintf("%s (%d %s)", text, e.Status, e.Code)
}

// temporary reports whether the same request may succeed later or elsewhere.
func (e *Error) temporary() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// permanent marks an error that another try would only repeat.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// readError makes an *Error of an answer that is not 2xx.
func readError(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	e := &Error{Title: http.StatusText(resp.StatusCode)}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if !strings.HasSuffix(kind, "json") || json.Unmarshal(body, e) != nil {
		e.Detail = firstLine(string(body))
	}
	e.Status = resp.StatusCode // what the body says may be a proxy's fancy
	e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	return e
}

// retryAfter reads seconds or an HTTP date.
func retryAfter(value string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

// wantType refuses an answer of another kind: somebody else's server, or a page
// that a proxy put in its place.
func wantType(resp *http.Response, want string) error {
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != want {
		return permanent{fmt.Errorf("%s answered with %q instead of %s: is it a runlog server?",
			resp.Request.URL.Redacted(), resp.Header.Get("Content-Type"), want)}
	}
	return nil
}
