package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
)

// status is an answer that is not a stream.
type status struct {
	code   int
	header http.Header
	body   []byte
}

func (s *status) Error() string { return fmt.Sprintf("status %d", s.code) }

// Refused reports whether the error is a 400 or 422 that names any of the words:
// a member of the request that this server does not take.
func Refused(err error, words ...string) bool {
	var s *status
	if !errors.As(err, &s) || (s.code != http.StatusBadRequest && s.code != http.StatusUnprocessableEntity) {
		return false
	}
	for _, w := range words {
		if bytes.Contains(s.body, []byte(w)) {
			return true
		}
	}
	return false
}

// Fail makes of an error of the SDK or the stream what Model.Stream returns:
// the caller's context error, or a *model.Error without secrets.
func (c *Call) Fail(err error) error {
	if ended := c.parent.Err(); ended != nil {
		return ended
	}
	var known *model.Error
	var answer *status
	switch {
	case errors.As(err, &known):
		known.Message = c.conn.hide(known.Message)
		return known
	case errors.As(err, &answer):
		return c.conn.refusal(answer)
	case errors.Is(context.Cause(c.ctx), errStalled):
		return c.stalled()
	case !c.started.Load():
		return c.conn.unreachable(err)
	}
	return &model.Error{Code: event.CodeModelTruncated, Retryable: true, Err: Plain(err),
		Message: "the model server broke the stream off before the answer was whole"}
}

// Truncated is the error of a stream that ended without saying why.
func Truncated() error {
	return &model.Error{Code: event.CodeModelTruncated, Retryable: true,
		Message: "the model server ended the stream without a finish reason: the answer is not whole"}
}

func (c *Call) stalled() error {
	e := &model.Error{Code: event.CodeModelTimeout, Retryable: true}
	if c.started.Load() {
		e.Message = fmt.Sprintf("the model sent nothing for %s in the middle of its answer", c.conn.endpoint.IdleTimeout)
	} else {
		e.Message = fmt.Sprintf("the model server did not begin to answer within %s", c.conn.endpoint.StartTimeout)
	}
	return e
}

// unreachable is a failure before any answer. Only a certificate that does not
// fit will not mend itself.
func (c *Conn) unreachable(err error) error {
	e := &model.Error{Code: event.CodeUnavailable, Retryable: true, Err: Plain(err)}
	var certificate *tls.CertificateVerificationError
	var dns *net.DNSError
	where := c.host()
	switch {
	case errors.As(err, &certificate):
		e.Retryable, e.Absent = false, true
		e.Message = "the certificate of the model server at " + where + " is not trusted: check base_url"
	case errors.As(err, &dns):
		e.Message = "the name of the model server " + where + " does not resolve: check base_url"
	default:
		e.Message = "no connection to the model server at " + where + ": check base_url, and that the server runs"
	}
	return e
}

func (c *Conn) host() string {
	if u, err := url.Parse(c.endpoint.BaseURL); err == nil {
		return u.Host
	}
	return "base_url"
}

// Plain takes the URL, which may hold secrets, off an error of net/http.
func Plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refusal tells what a status means for the one who configured the model.
func (c *Conn) refusal(s *status) error {
	said, kind := readError(s.body)
	e := &model.Error{Code: event.CodeModelError, Message: fmt.Sprintf("the model server answered %d", s.code)}
	switch {
	case s.code == http.StatusOK:
		e.Message = "the model server did not answer with a stream: check base_url"
	case s.code == http.StatusTooManyRequests && isQuota(kind):
		e.Absent = true
		e.Message += ": the account's quota is used up, check its plan"
	case Passes(s.code):
		e.Code, e.Retryable = event.CodeUnavailable, true
		e.RetryAfter = RetryAfter(s.header, time.Now())
	case s.code == http.StatusUnauthorized, s.code == http.StatusForbidden:
		e.Absent = true
		e.Message += ": it does not accept the key, check api_key"
	case s.code == http.StatusNotFound:
		e.Absent = true
		e.Message += fmt.Sprintf(": check that base_url is right and that it has a model %q", c.endpoint.Name)
	case isFilter(kind):
		e.Code = event.CodeModelRefused
		e.Message += ": its content filter refused the request"
	case isTooLong(said, kind) || s.code == http.StatusRequestEntityTooLarge:
		e.Message += ": the conversation is longer than the model takes"
	case s.code >= 400:
		e.Message += ": it does not accept the request, check the model's name, parameters and tools"
	}
	switch s.header.Get("X-Should-Retry") {
	case "true":
		e.Retryable = true
	case "false":
		e.Retryable = false
	}
	return c.saying(e, said)
}

// InStream is the error that a server reports inside its stream. data is the
// event, or its error member.
func InStream(data []byte) error {
	said, kind := readError(data)
	e := &model.Error{Code: event.CodeModelError, Message: "the model server failed in the middle of its answer"}
	switch {
	case isFilter(kind):
		e.Code = event.CodeModelRefused
	case isTooLong(said, kind), isQuota(kind), isFinal(kind):
	default:
		e.Retryable = true
	}
	if said != "" {
		e.Message += ": " + said
	}
	return e
}

func (c *Conn) saying(e *model.Error, said string) error {
	if said != "" {
		e.Message += "; it says: " + said
	}
	e.Message = c.hide(e.Message)
	return e
}

// hide takes the endpoint's secrets out of what a server wrote.
func (c *Conn) hide(text string) string {
	if key := c.endpoint.APIKey; len(key) >= 4 {
		text = strings.ReplaceAll(text, key, "[key]")
	}
	for _, v := range c.endpoint.Headers {
		if v = strings.TrimPrefix(v, "Bearer "); len(v) >= 8 {
			text = strings.ReplaceAll(text, v, "[secret]")
		}
	}
	return text
}

// readError finds the message and the kind in the error shapes that are about:
// {"error":{"message","type","code"}}, {"error":"…"}, {"message"}, {"detail"},
// and plain text.
func readError(data []byte) (said, kind string) {
	var outer map[string]json.RawMessage
	if json.Unmarshal(data, &outer) != nil {
		return Clip(plainText(data)), ""
	}
	inner := outer
	if raw, ok := outer["error"]; ok {
		if said = stringOf(raw); said == "" {
			inner = nil
			_ = json.Unmarshal(raw, &inner)
		}
	}
	for _, member := range []string{"message", "detail", "msg"} {
		if said == "" {
			said = stringOf(inner[member])
		}
	}
	if said == "" && inner["detail"] != nil {
		said = string(inner["detail"])
	}
	for _, member := range []string{"code", "type", "param"} {
		kind += " " + strings.Trim(string(inner[member]), `"`)
	}
	return Clip(said), kind
}

func stringOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

func plainText(data []byte) string {
	text := strings.TrimSpace(string(data))
	if strings.HasPrefix(text, "<") {
		return "" // a page for people
	}
	return text
}

// maxSaid bounds what is quoted of a server.
const maxSaid = 500

// Clip is what can be quoted of a server: one line, not too long.
func Clip(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "�")), " ")
	if len(s) > maxSaid {
		s = strings.ToValidUTF8(s[:maxSaid], "") + "…"
	}
	return s
}

func hasAny(s string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

func isQuota(kind string) bool { return hasAny(kind, "insufficient_quota", "billing") }

func isFilter(kind string) bool { return hasAny(kind, "content_filter", "content_policy") }

func isTooLong(said, kind string) bool {
	return hasAny(kind, "context_length", "request_too_large") ||
		hasAny(strings.ToLower(said), "prompt is too long", "maximum context length", "context window")
}

// isFinal reports kinds of errors that come again however often one asks.
func isFinal(kind string) bool {
	return hasAny(kind, "invalid_request", "authentication", "permission", "not_found", "BadRequest", " 400", " 401", " 403", " 404", " 422")
}

// maxRetryAfter is the longest wait that is believed.
const maxRetryAfter = 24 * time.Hour

// Passes reports whether a server that answers with this status may answer otherwise
// later.
func Passes(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly:
		return true
	}
	return status >= 500 && status != http.StatusNotImplemented
}

// RetryAfter reads retry-after-ms and Retry-After (seconds or a date).
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return wait(ms / 1000)
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return wait(seconds)
	}
	if at, err := http.ParseTime(value); err == nil {
		return wait(at.Sub(now).Seconds())
	}
	return 0
}

func wait(seconds float64) time.Duration {
	switch {
	case seconds >= maxRetryAfter.Seconds():
		return maxRetryAfter
	case seconds > 0: // not so for NaN
		return time.Duration(seconds * float64(time.Second))
	}
	return 0
}
