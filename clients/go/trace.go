package runlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"

	"github.com/runlog-dev/runlog/event"
)

// A Trace is every run under one trace id, in the order they began.
type Trace struct {
	TraceID string `json:"trace_id"`
	Runs    []Run  `json:"runs"`
}

// Trace returns the runs of a trace.
func (c *Client) Trace(ctx context.Context, traceID string) (Trace, error) {
	var t Trace
	if err := c.call(ctx, request{method: http.MethodGet, path: tracePath(traceID)}, &t); err != nil {
		return Trace{}, fmt.Errorf("get trace %s: %w", traceID, err)
	}
	return t, nil
}

// TraceEvents returns the events so far of every run of a trace, in order. It
// reads page by page and takes up a page that broke off where it broke.
func (c *Client) TraceEvents(ctx context.Context, traceID string) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		r := &pageReader{c: c, path: tracePath(traceID) + "/events", yield: yield}
		for r.more() {
			if err := r.page(ctx); err != nil {
				yield(event.Event{}, fmt.Errorf("read events of trace %s: %w", traceID, err))
				return
			}
		}
	}
}

func tracePath(id string) string { return "/v1/traces/" + url.PathEscape(id) }

// maxLine bounds one line of NDJSON: an event, with room for what is to come.
const maxLine = 4 << 20

// A pageReader walks the pages of an NDJSON listing.
type pageReader struct {
	c      *Client
	path   string
	cursor string
	taken  int // events of the current page handed on
	over   bool
	yield  func(event.Event, error) bool
}

func (r *pageReader) more() bool { return !r.over }

// page reads one page, over several connections if need be.
func (r *pageReader) page(ctx context.Context) error {
	p, err := r.c.pursue()
	if err != nil {
		return err
	}
	r.taken = 0
	for {
		err := r.attempt(ctx, p)
		if err == nil || r.over {
			return nil
		}
		if err := p.again(ctx, err); err != nil {
			return err
		}
	}
}

func (r *pageReader) attempt(ctx context.Context, p *pursuit) error {
	v := url.Values{}
	if r.cursor != "" {
		v.Set("cursor", r.cursor)
	}
	resp, err := r.c.send(ctx, p.edge(), request{
		method: http.MethodGet, path: withQuery(r.path, v), accept: "application/x-ndjson",
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	p.heard()
	if err := wantType(resp, "application/x-ndjson"); err != nil {
		return err
	}
	if err := r.lines(bufio.NewScanner(resp.Body), p); err != nil || r.over {
		return err
	}
	r.cursor = resp.Header.Get("Runlog-Next-Cursor")
	r.over = r.cursor == ""
	return nil
}

// lines hands on what this page has not brought before.
func (r *pageReader) lines(scan *bufio.Scanner, p *pursuit) error {
	scan.Buffer(nil, maxLine)
	scan.Split(wholeLines)
	for n := 0; scan.Scan(); {
		if !isEventLine(scan.Bytes()) {
			continue
		}
		if n++; n <= r.taken {
			continue
		}
		e, err := event.Decode(scan.Bytes())
		if err != nil {
			return permanent{err}
		}
		r.taken++
		p.progressed()
		if !r.yield(e, nil) {
			r.over = true
			return nil
		}
	}
	return scan.Err()
}

// isEventLine tells events from pings and empty lines, whose number differs from
// one try to the next. What is no JSON counts as an event, to be complained of.
func isEventLine(line []byte) bool {
	var head struct {
		Seq event.Seq `json:"seq"`
	}
	return len(line) > 0 && (json.Unmarshal(line, &head) != nil || head.Seq > 0)
}

// wholeLines splits at LF. A last line without one was cut.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}
