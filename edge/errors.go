package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A Problem is an answer that is not what the client asked for: RFC 9457, and
// beside it an error member for clients of model vendors.
type Problem struct {
	Type   string     `json:"type"`
	Title  string     `json:"title"`
	Status int        `json:"status"`
	Detail string     `json:"detail"`
	Code   event.Code `json:"code"`
	Param  string     `json:"param,omitempty"` // the member or parameter that is wrong
	Head   *event.Seq `json:"head,omitempty"`  // with cursor_ahead: the last event there is
	Known  []string   `json:"known,omitempty"` // what could have been named instead
	Error_ vendor     `json:"error"`

	retryAfter time.Duration
	closes     bool // the connection closes after the answer
	allow      string
	attach     *rpcAttach // the run that is in the way, for JSON-RPC
}

type vendor struct {
	Type    string     `json:"type"`
	Code    event.Code `json:"code"`
	Message string     `json:"message"`
	Param   string     `json:"param,omitempty"`
}

func (p *Problem) Error() string { return p.Detail }

func problem(status int, code event.Code, format string, args ...any) *Problem {
	return &Problem{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// bad is a request that has to be corrected.
func bad(param, format string, args ...any) *Problem {
	p := problem(http.StatusBadRequest, event.CodeBadRequest, format, args...)
	p.Param = param
	return p
}

// unsupported is a request for what is not built.
func unsupported(param, format string, args ...any) *Problem {
	p := problem(http.StatusBadRequest, event.CodeUnsupported, format, args...)
	p.Param = param
	return p
}

func notFound(what, id string) *Problem {
	return problem(http.StatusNotFound, event.CodeNotFound, "there is no %s %q", what, id)
}

// answers is the table from what the stores and the stream say to what HTTP says.
var answers = []struct {
	is     error
	status int
	code   event.Code
	retry  time.Duration
}{
	{auth.ErrUnauthorized, 401, event.CodeUnauthorized, 0},
	{auth.ErrToken, 401, event.CodeUnauthorized, 0},
	{auth.ErrRevoked, 401, event.CodeUnauthorized, 0},
	{stream.ErrBadCursor, 400, event.CodeBadCursor, 0},
	{eventlog.ErrMismatch, 422, event.CodeMismatch, 0},
	{context.Canceled, statusClientGone, event.CodeInterrupted, 0},
	{eventlog.ErrInboxFull, 429, event.CodeRateLimited, time.Second},
	{eventlog.ErrTooLarge, 413, event.CodeTooLarge, 0},
	{eventlog.ErrNotFound, 404, event.CodeNotFound, 0},
	{eventlog.ErrGone, 410, event.CodeExpired, 0},
	{eventlog.ErrFull, 503, event.CodeUnavailable, 10 * time.Second},
	{eventlog.ErrUnavailable, 503, event.CodeUnavailable, 2 * time.Second},
	{artifacts.ErrNotFound, 404, event.CodeNotFound, 0},
	{artifacts.ErrBadKey, 404, event.CodeNotFound, 0}, // such a key can name nothing
	{artifacts.ErrBadMeta, 400, event.CodeBadRequest, 0},
	{artifacts.ErrExists, 409, event.CodeConflict, 0},
	{artifacts.ErrTooLarge, 413, event.CodeTooLarge, 0},
	{artifacts.ErrUnavailable, 503, event.CodeUnavailable, 2 * time.Second},
	{catalog.ErrNotFound, 404, event.CodeNotFound, 0},
	{catalog.ErrBadCursor, 400, event.CodeBadCursor, 0},
	{catalog.ErrUnavailable, 503, event.CodeUnavailable, 2 * time.Second},
	{catalog.ErrOldSchema, 503, event.CodeUnavailable, 10 * time.Second},
	{stream.ErrCrowded, 503, event.CodeOverloaded, 2 * time.Second},
	{errDraining, 503, event.CodeUnavailable, time.Second},
	{context.DeadlineExceeded, 503, event.CodeUnavailable, 2 * time.Second},
}

// errDraining: this edge is going away; another one serves.
var errDraining = errors.New("this edge is shutting down; connect again")

// toProblem finds the answer to an error. What is not in the table is a fault of
// ours, whose text is for the log alone.
func toProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var ahead *stream.AheadError
	if errors.As(err, &ahead) {
		p := problem(http.StatusConflict, event.CodeCursorAhead, "%s", ahead)
		p.Head = &ahead.Head
		return p
	}
	for _, a := range answers {
		if errors.Is(err, a.is) {
			p := problem(a.status, a.code, "%s", err)
			if a.status == http.StatusServiceUnavailable {
				p.Detail = a.is.Error() // where it is and what it said is not the client's
			}
			if a.code == event.CodeMismatch {
				p.Detail = "the Idempotency-Key or the run_id was used before, with another body: repeat a request byte for byte, or take a new one"
			}
			p.retryAfter = a.retry
			return p
		}
	}
	return problem(http.StatusInternalServerError, event.CodeInternal, "something went wrong here; the request id leads to the log")
}

// statusClientGone is what the log says of a client that left before its answer.
const statusClientGone = 499

const problemType = "application/problem+json"

// writeProblem answers with a problem.
func writeProblem(w http.ResponseWriter, p *Problem) {
	h := w.Header()
	h.Set("Content-Type", problemType)
	h.Set("Cache-Control", "no-store")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(wholeSeconds(p.retryAfter)))
	}
	if p.closes {
		h.Set("Connection", "close")
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	body := event.Encode(p.whole())
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

// A retold answer has as a problem what other code than ours would refuse with a text.
type retold struct {
	http.ResponseWriter
	as      func(status int) *Problem // nil: it is none
	refused bool
}

func (w *retold) WriteHeader(status int) {
	p := w.as(status)
	if w.refused = p != nil; !w.refused {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	h := w.Header()
	for _, name := range []string{"Content-Disposition", "Content-Security-Policy"} {
		h.Del(name)
	}
	writeProblem(w.ResponseWriter, p)
}

func (w *retold) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap leads http.ResponseController to the connection.
func (w *retold) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// whole is the problem with what follows from the rest of it.
func (p *Problem) whole() *Problem {
	out := *p
	out.Type, out.Title = "about:blank", http.StatusText(p.Status)
	out.Error_ = vendor{vendorType(p.Status), p.Code, p.Detail, p.Param}
	return &out
}

// vendorType is the word that the SDKs of model vendors sort errors by.
func vendorType(status int) string {
	switch {
	case status == 401:
		return "authentication_error"
	case status == 403:
		return "permission_error"
	case status == 404:
		return "not_found_error"
	case status == 413:
		return "request_too_large"
	case status == 429:
		return "rate_limit_error"
	case status == 503:
		return "overloaded_error"
	case status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}
