package runlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/clients/go/sse"
	"github.com/runlog-dev/runlog/event"
)

// Types of what a stream carries beside the log's events. They have Type, Data
// and, for the first two, Seq and SessionID.
const (
	Snapshot  event.Type = "snapshot"  // the fold of events 1..Seq; the tail follows
	Reset     event.Type = "reset"     // the events asked for are gone: forget all, go on from this snapshot
	Heartbeat event.Type = "heartbeat" // {status, elapsed_ms, head}: the run is alive, or "unattended"

	position event.Type = "position" // moves the cursor past what the viewer may not see
)

// EventOptions say which part of a stream to read.
type EventOptions struct {
	After    event.Seq // the last event already seen; 0: from the start
	AfterID  string    // the ID of that event, in place of After: after a restore of the server's log it tells more
	Snapshot bool      // begin with a snapshot instead of After
	NoFollow bool      // end at the head instead of waiting for more
	Internal bool      // also what only auditors may see
}

// RunEvents follows a run and ends after its terminal event, or at once if
// After is that event.
func (c *Client) RunEvents(ctx context.Context, runID string, opt EventOptions) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		f := newFollower(c, opt)
		f.runID, f.path = runID, runPath(runID)+"/events"
		f.follow(ctx, yield)
	}
}

// SessionEvents follows a session, its future runs included, until ctx is done.
func (c *Client) SessionEvents(ctx context.Context, sessionID string, opt EventOptions) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		f := newFollower(c, opt)
		f.path = sessionPath(sessionID) + "/events"
		f.follow(ctx, yield)
	}
}

// SubmitStream starts a run and follows it to its terminal event. If the
// connection is lost before the run is known, the submission is repeated with
// the same idempotency key, so that there is one run.
func (c *Client) SubmitStream(ctx context.Context, s Submission) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		f := newFollower(c, EventOptions{})
		r, err := s.request()
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		f.submit, f.runID = &r, s.RunID
		f.follow(ctx, yield)
	}
}

// A follower is one viewer's way along a stream, over as many connections as it takes.
type follower struct {
	c      *Client
	opt    EventOptions
	submit *request // until the run is known to exist
	runID  string   // empty for a session, or until the server has named the run
	path   string
	cursor string    // id to resume after, as the server gave it
	seq    event.Seq // last event yielded
}

func newFollower(c *Client, opt EventOptions) *follower {
	f := &follower{c: c, opt: opt}
	if opt.After > 0 && !opt.Snapshot {
		f.seq, f.cursor = opt.After, opt.After.String()
	}
	if opt.AfterID != "" && !opt.Snapshot {
		f.cursor = opt.AfterID[strings.LastIndexByte(opt.AfterID, '-')+1:]
		seq, _, _ := strings.Cut(f.cursor, "~")
		n, _ := strconv.ParseUint(seq, 10, 64) // of what is no position, the server says so
		f.seq = event.Seq(n)
	}
	return f
}

// errCut is a stream that ended in good order but before its end.
var errCut = errors.New("the server ended the stream before the run did")

func (f *follower) follow(ctx context.Context, yield func(event.Event, error) bool) {
	p, err := f.c.pursue()
	for err == nil {
		var over bool
		over, err = f.connect(ctx, p, yield)
		if over {
			return
		}
		if err = p.again(ctx, err); err != nil {
			err = fmt.Errorf("follow %s: %w", f.what(), err)
		}
	}
	yield(event.Event{}, err)
}

func (f *follower) what() string {
	if f.path == "" {
		return "new run"
	}
	return strings.TrimSuffix(strings.TrimPrefix(f.path, "/v1/"), "/events")
}

// connect reads one connection to its end. over means that there is nothing
// more to come or nobody to take it.
func (f *follower) connect(ctx context.Context, p *pursuit, yield func(event.Event, error) bool) (over bool, err error) {
	resp, err := f.c.send(ctx, p.edge(), f.request())
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	p.heard()
	if resp.StatusCode == http.StatusNoContent {
		return true, nil
	}
	if err := wantType(resp, "text/event-stream"); err != nil {
		return false, err
	}
	f.accepted(resp)
	return f.read(&signs{resp.Body, p}, p, yield)
}

func (f *follower) request() request {
	r := request{method: http.MethodGet, header: http.Header{}}
	if f.submit != nil {
		r = *f.submit
	} else {
		r.path = withQuery(f.path, f.query())
		if f.cursor != "" {
			r.header.Set("Last-Event-ID", f.cursor)
		}
	}
	r.accept = "text/event-stream, application/problem+json" // else it would be taken for an EventSource, which is told no status
	return r
}

func (f *follower) query() url.Values {
	v := url.Values{}
	if f.opt.Snapshot && f.cursor == "" {
		v.Set("snapshot", "1")
	}
	if f.opt.NoFollow {
		v.Set("follow", "false")
	}
	if f.opt.Internal {
		v.Set("include", "internal")
	}
	return v
}

// accepted notes the run that a submission became, if the answer names it.
func (f *follower) accepted(resp *http.Response) {
	if f.submit == nil {
		return
	}
	if _, rest, ok := strings.Cut(resp.Header.Get("Location"), "/v1/runs/"); ok {
		id, _, _ := strings.Cut(rest, "/")
		if id, err := url.PathUnescape(id); err == nil {
			f.named(id)
		}
	}
}

// named turns a submission into the run it became.
func (f *follower) named(runID string) {
	if f.submit != nil && runID != "" {
		f.submit, f.runID, f.path = nil, runID, runPath(runID)+"/events"
	}
}

// signs is a stream's body whose every byte is a sign of life.
type signs struct {
	io.Reader
	p *pursuit
}

func (s *signs) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if n > 0 {
		s.p.heard()
	}
	return n, err
}

func (f *follower) read(body io.Reader, p *pursuit, yield func(event.Event, error) bool) (over bool, err error) {
	reader := sse.NewReader(body, sse.Options{MaxMessage: f.c.MaxMessage})
	for {
		m, err := reader.Next()
		if d := reader.Retry(); d > 0 {
			p.retry = d
		}
		switch {
		case errors.Is(err, io.EOF):
			if f.opt.NoFollow {
				return true, nil
			}
			return false, errCut
		case errors.Is(err, sse.ErrTooLong):
			return false, permanent{err}
		case err != nil:
			return false, err
		}
		over, err := f.take(m, p, yield)
		if over || err != nil {
			return over, err
		}
	}
}

// take hands one message on. A message that was seen before is dropped, so that
// a server that repeats itself does no harm.
func (f *follower) take(m sse.Message, p *pursuit, yield func(event.Event, error) bool) (over bool, err error) {
	e, err := decode(m)
	if err != nil {
		return false, permanent{fmt.Errorf("message %q: %w", m.ID, err)}
	}
	switch {
	case e.Type == position:
		f.cursor = m.ID
		p.progressed()
		return false, nil
	case e.Type == Snapshot || e.Type == Reset:
		f.seq = e.Seq
	case e.Seq == 0: // a heartbeat, or news this client does not know
		return !yield(e, nil), nil
	case e.Seq <= f.seq:
		return false, nil
	}
	f.seq, f.cursor = e.Seq, m.ID
	if f.cursor == "" {
		f.cursor = e.Seq.String()
	}
	f.named(e.RunID)
	p.progressed()
	ended := e.Type.Terminal() && e.RunID == f.runID && f.runID != ""
	return !yield(e, nil) || ended, nil
}

// decode makes an event of a message. What is not of the log has the message's
// event name as its type and no ID.
func decode(m sse.Message) (event.Event, error) {
	name := event.Type(m.Event)
	switch name {
	case Snapshot, Reset:
		var head struct {
			Seq       event.Seq `json:"seq"`
			SessionID string    `json:"session_id"`
		}
		err := json.Unmarshal(m.Data, &head)
		return event.Event{Type: name, Seq: head.Seq, SessionID: head.SessionID, Data: bytes.Clone(m.Data)}, err
	case Heartbeat, position:
		return event.Event{Type: name, Data: bytes.Clone(m.Data)}, nil
	}
	e, err := event.Decode(m.Data)
	if err != nil && !isLogged(name) {
		return event.Event{Type: name, Data: bytes.Clone(m.Data)}, nil
	}
	if err == nil && e.ID == "" { // an ID tells the log's events from the stream's own
		e.ID = e.SessionID + "-" + e.Seq.String()
	}
	return e, err
}

// isLogged reports whether the name is that of a type which only the log has.
func isLogged(name event.Type) bool {
	for _, t := range event.Types {
		if t == name {
			return true
		}
	}
	return false
}
