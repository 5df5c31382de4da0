package edge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A traceState is every run under a trace, in the order they began.
type traceState struct {
	TraceID string        `json:"trace_id"`
	Runs    []catalog.Run `json:"runs"`
}

func (s *Server) getTrace(w http.ResponseWriter, r *http.Request, c *call) error {
	runs, err := s.traceRuns(r, c)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, traceState{r.PathValue("trace"), runs})
	return nil
}

// traceRuns finds the runs of the trace that a request names.
func (s *Server) traceRuns(r *http.Request, c *call) ([]catalog.Run, error) {
	id := r.PathValue("trace")
	c.note("trace", id)
	if s.Catalog == nil {
		return nil, errNoCatalog
	}
	if event.CheckID("trace id", id) != nil {
		return nil, notFound("trace", id)
	}
	runs, err := s.Catalog.RunsOfTrace(r.Context(), c.who.Tenant, id)
	if err == nil && len(runs) == 0 {
		err = notFound("trace", id)
	}
	return runs, err
}

// traceEvents answers with one page of the events of a trace, as lines of JSON:
// run after run in the order they began, each with its sub-agents' runs inside.
// The header Runlog-Next-Cursor, if there is one, asks for the next page.
func (s *Server) traceEvents(w http.ResponseWriter, r *http.Request, c *call) error {
	to, err := audience(r, c)
	if err != nil {
		return err
	}
	at, err := readTraceCursor(r.URL.Query().Get("cursor"))
	if err != nil {
		return err
	}
	runs, err := s.traceRuns(r, c)
	if err != nil {
		return err
	}
	page := &tracePage{to: to, tenant: c.who.Tenant, log: s.Log}
	next, err := page.read(r.Context(), families(runs), at, s.begins)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	if next != nil {
		h.Set("Runlog-Next-Cursor", next.String())
	}
	_, _ = w.Write(page.lines)
	return nil
}

// begins is the seq after which a run's events come, as far as that is known.
func (s *Server) begins(ctx context.Context, tenant, runID string) event.Seq {
	ref, err := s.Log.FindRun(ctx, tenant, runID)
	if err != nil {
		return 0 // older than the index: look from the session's beginning
	}
	return ref.After
}

// A family is a run with the runs of its sub-agents, which lie inside of it.
type family struct {
	catalog.Run
	members map[string]bool
}

// families sorts the runs of a trace under those that nobody of the trace began.
func families(runs []catalog.Run) []*family {
	var all []*family
	of := map[string]*family{}
	for _, r := range runs {
		f := of[r.ParentRunID]
		if r.ParentRunID == "" || f == nil {
			f = &family{r, map[string]bool{}}
			all = append(all, f)
		}
		f.members[r.RunID] = true
		of[r.RunID] = f
	}
	return all
}

// A traceCursor is a place in a trace: in the family of a run, after a seq.
type traceCursor struct {
	Run string    `json:"r"`
	Seq event.Seq `json:"s"`
}

func (t traceCursor) String() string { return base64.RawURLEncoding.EncodeToString(event.Encode(t)) }

func readTraceCursor(s string) (t traceCursor, err error) {
	if s == "" {
		return t, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(raw, &t) != nil || t.Run == "" {
		return t, problem(http.StatusBadRequest, event.CodeBadCursor, "malformed page cursor; use the Runlog-Next-Cursor of the page before")
	}
	return t, nil
}

// What a page of a trace holds at most.
const (
	tracePageEvents = 500
	tracePageBytes  = 1 << 20
	traceScan       = 256 << 10 // read from the log at once
)

// A tracePage is filled from the log.
type tracePage struct {
	log    *eventlog.Log
	tenant string
	to     dialect.Audience
	lines  []byte
	events int
	seen   int // events looked at, shown or not
}

func (p *tracePage) full() bool {
	return p.events >= tracePageEvents || len(p.lines) >= tracePageBytes || p.seen >= 20*tracePageEvents
}

// read fills the page from a cursor on, and returns the cursor of what is left.
func (p *tracePage) read(ctx context.Context, all []*family, at traceCursor, begins func(context.Context, string, string) event.Seq) (*traceCursor, error) {
	first := 0
	if at.Run != "" {
		first = slices.IndexFunc(all, func(f *family) bool { return f.RunID == at.Run })
		if first < 0 {
			return nil, problem(http.StatusBadRequest, event.CodeBadCursor, "the page cursor is of another trace")
		}
	}
	for _, f := range all[first:] {
		if f.RunID != at.Run {
			at = traceCursor{f.RunID, begins(ctx, p.tenant, f.RunID)}
		}
		seq, over, err := p.family(ctx, f, at.Seq)
		if err != nil {
			return nil, err
		}
		if !over {
			return &traceCursor{f.RunID, seq}, nil
		}
	}
	return nil, nil
}

// family adds the events of one run and what is inside of it. over: there are no
// more, at least not yet.
func (p *tracePage) family(ctx context.Context, f *family, after event.Seq) (at event.Seq, over bool, err error) {
	k := eventlog.Key{Tenant: p.tenant, Session: f.SessionID}
	head, err := p.log.Head(ctx, k)
	if err != nil {
		return after, false, err
	}
	from := eventlog.Head{Seq: after}
	for from.Seq < head.Seq {
		frames, err := p.log.Page(ctx, k, from, head, traceScan)
		if err != nil {
			return after, false, err
		}
		for _, frame := range frames {
			for line := range frame.Lines() {
				e, err := event.Decode(line)
				if err != nil || e.Seq <= after {
					continue
				}
				if p.full() {
					return after, false, nil
				}
				after = e.Seq
				p.add(f, e, line)
				if e.RunID == f.RunID && e.Type.Terminal() {
					return after, true, nil
				}
			}
			from = frame.End()
		}
	}
	return after, true, nil
}

func (p *tracePage) add(f *family, e event.Event, line []byte) {
	p.seen++
	if !f.members[e.RunID] {
		return
	}
	for _, m := range (native.Dialect{}).Event(e, line, p.to) {
		p.lines = append(append(p.lines, m.Data...), '\n')
		p.events++
	}
}
