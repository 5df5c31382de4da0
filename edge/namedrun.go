package edge

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A namedRun is a run as the client of another protocol calls it. Where a protocol
// has no runs that wait, one that is parked has ended, and what follows of it once
// its client has answered is another one, with a name of its own.
type namedRun struct {
	ref       eventlog.RunRef
	place     runPlace                    // of the run
	start     func(context.Context) error // has it executed, or given what it waits for
	untilGone bool                        // cancel it when its client disconnects
	header    http.Header                 // what the answer says besides where the run is
}

// there is a run that was accepted before.
func there(p runPlace) *namedRun { return &namedRun{ref: p.ref(), place: p, start: placed} }

// reserved is a run that has its entry in the runs index.
func (s *Server) reserved(sub *submission, ref eventlog.RunRef) *namedRun {
	return &namedRun{ref: ref, place: placeOf(sub.tenant, ref), untilGone: sub.untilGone,
		start: func(ctx context.Context) error { return s.place(ctx, sub, ref) }}
}

// as is what the client calls the run, if the log calls it otherwise.
func (n *namedRun) as() string {
	if n.ref.Continues == "" {
		return ""
	}
	return n.ref.RunID
}

// from is the last event before the run, where it is what follows of another one.
func (n *namedRun) from() event.Seq {
	if n.ref.Continues == "" {
		return 0
	}
	return n.ref.After
}

// placed is what is left to do for a run that was accepted before.
func placed(context.Context) error { return nil }

// findNamed finds a run by its name, which may be its id in the log.
func (s *Server) findNamed(ctx context.Context, c *call, id string) (*namedRun, error) {
	c.note("run", id)
	if event.CheckID("response id", id) != nil {
		return nil, notFound("response", id)
	}
	ref, err := s.Log.FindRun(ctx, c.who.Tenant, id)
	if err == nil && ref.Continues != "" {
		p, err := s.findRun(ctx, c, ref.Continues)
		return &namedRun{ref: ref, place: p, start: placed}, err
	}
	p, err := s.findRun(ctx, c, id)
	return there(p), err
}

// reserveNamed makes the entry of a new run, or finds it if it was asked for before.
func (s *Server) reserveNamed(ctx context.Context, sub *submission) (n *namedRun, existed bool, err error) {
	ref, existed, err := s.reserve(ctx, sub)
	return s.reserved(sub, ref), existed, err
}

// continueNamed makes the entry of what follows of the run that a session is parked
// with, or finds it. The id stands for the answers: the same ones again are the same
// run.
func (s *Server) continueNamed(ctx context.Context, c *call, fold *event.Session, id, protocol string, answers func() ([]event.Command, error)) (*namedRun, error) {
	ref, err := s.Log.FindRun(ctx, c.who.Tenant, id)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return nil, err
	}
	start := placed
	if err != nil || !ref.Accepted {
		list, err := answers()
		if err != nil {
			return nil, err
		}
		if ref, start, err = s.continues(ctx, c, fold, id, bodyHash(protocol, []byte(id)), list); err != nil {
			return nil, err
		}
	}
	p, err := s.findRun(ctx, c, ref.Continues)
	return &namedRun{ref: ref, place: p, start: start}, err
}

// continues reserves a name for what follows of a parked run; start gives it the answers, unless
// they were given under that name before.
func (s *Server) continues(ctx context.Context, c *call, fold *event.Session, id, hash string, answers []event.Command) (ref eventlog.RunRef, start func(context.Context) error, err error) {
	run := fold.Parked()
	ref, _, err = s.Log.Reserve(ctx, c.who.Tenant, "", eventlog.RunRef{RunID: id, SessionID: fold.SessionID, TraceID: run.TraceID, Agent: run.Agent,
		CommandID: id + ".continue", After: fold.Seq, BodyHash: hash, Created: event.At(time.Now()), Continues: run.RunID})
	if ref.Accepted {
		return ref, placed, err
	}
	return ref, func(ctx context.Context) error { return s.answer(ctx, c, ref, answers) }, err
}

// answer submits commands about a run and has them taken. Repeated, they have
// the same ids.
func (s *Server) answer(ctx context.Context, c *call, ref eventlog.RunRef, answers []event.Command) error {
	k := eventlog.Key{Tenant: c.who.Tenant, Session: ref.SessionID}
	for _, cmd := range answers {
		cmd.CommandID = ref.RunID + "." + cmd.CommandID
		cmd.SessionID, cmd.RunID, cmd.TraceID = ref.SessionID, ref.Continues, ref.TraceID
		cmd.By, cmd.Time = caller(c), ref.Created
		if err := s.Log.Submit(ctx, k, cmd); err != nil {
			return err
		}
	}
	if err := s.Log.Wake(ctx, k); err != nil {
		return err
	}
	return s.Log.Accept(ctx, ref)
}

// parks reports whether an event parks its run: a protocol whose runs cannot wait
// ends its stream there.
func parks(e event.Event) bool {
	return e.Type == event.RunStatus && bytes.Contains(e.Data, []byte(`"expires_at"`))
}

// parksAfter tells of later events than one whether they park the run.
func parksAfter(from event.Seq) func(event.Event) bool {
	return func(e event.Event) bool { return e.Seq > from && parks(e) }
}

// idles tells where a stream ends that cannot wait: at the event after from that
// parks the run, unless it has gone on since or is about to.
func (s *Server) idles(ctx context.Context, p runPlace, from event.Seq) func(event.Event) bool {
	ctx = context.WithoutCancel(ctx) // the handler may have returned
	return func(e event.Event) bool {
		var d event.RunStatusData
		if e.Seq <= from || !parks(e) || e.Into(&d) != nil {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, settleWait)
		defer cancel()
		waiting, err := s.Log.Inbox(ctx, p.key) // first: a command may turn into events meanwhile
		if err != nil {
			return true // it has been parked: no lie
		}
		fold, err := s.load(ctx, p.key)
		if err != nil {
			return true
		}
		run := fold.Parked()
		still := fold.Seq <= e.Seq || run != nil && run.RunID == p.runID && run.ExpiresAt != nil && run.ExpiresAt.Equal(d.ExpiresAt.Time)
		return still && !answered(fold, p.runID, waiting)
	}
}

// answered reports whether a command that waits to be taken ends the wait of a parked run: a
// client that has sent it and comes back would otherwise be asked for the same again.
func answered(fold *event.Session, runID string, waiting []eventlog.Waiting) bool {
	return slices.ContainsFunc(waiting, func(cmd eventlog.Waiting) bool {
		t := fold.Call(cmd.CallID)
		return fold.Within(cmd.RunID, runID) && (cmd.Kind == event.Cancel || cmd.Kind == event.Resume || t != nil && t.Waits())
	})
}

// readThrough starts a run and encodes it for nobody, to its end or as far as it
// gets in the time that a request may wait.
func (s *Server) readThrough(ctx context.Context, p runPlace, start func(context.Context) error, req stream.Request) error {
	ctx, done, err := s.admit(ctx)
	if err != nil {
		return err
	}
	defer done()
	reading, cancel := patience(ctx, s.opts.MaxWait)
	defer cancel()
	req.Transport, req.Hold = stream.SSE{}, holdOf(ctx)
	p.into(&req)
	v, err := s.hub.View(ctx, req)
	if err != nil {
		return err
	}
	defer v.Close()
	if err := start(ctx); err != nil {
		return err
	}
	if _, err := v.Prepare(ctx); err != nil {
		return err
	}
	if err = v.Serve(reading, nowhere{http.Header{}}); reading.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// nowhere takes what nobody reads.
type nowhere struct{ h http.Header }

func (n nowhere) Header() http.Header              { return n.h }
func (nowhere) Write(b []byte) (int, error)        { return len(b), nil }
func (nowhere) WriteHeader(int)                    {}
func (nowhere) Flush()                             {}
func (nowhere) SetWriteDeadline(_ time.Time) error { return nil }
