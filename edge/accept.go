package edge

import (
	"context"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A submission is a run that somebody wants.
type submission struct {
	tenant         string
	by             string
	idempotencyKey string
	traceparent    string
	want           eventlog.RunRef // ids that are empty are given by reserve
	messages       []inputMessage
	config         *event.RunConfig
	queue          event.Queue
	resumes        string // the run that this one goes on from
	untilGone      bool   // cancel it when its client disconnects
}

// reserve finds or makes the run's entry in the runs index. existed: it was
// asked for before, by the same request.
func (s *Server) reserve(ctx context.Context, sub *submission) (ref eventlog.RunRef, existed bool, err error) {
	if _, err := distinct(sub.messages); err != nil {
		return ref, false, err // before anything is kept
	}
	for _, m := range sub.messages {
		if err := m.CheckJSON(); err != nil {
			return ref, false, bad("", "%s", err)
		}
	}
	want := sub.want
	if want.RunID == "" {
		want.RunID = event.NewID("run")
	}
	known := want.SessionID != ""
	if !known {
		want.SessionID = event.NewID("ses")
	}
	k := eventlog.Key{Tenant: sub.tenant, Session: want.SessionID}
	if known {
		head, err := s.Log.Head(ctx, k)
		if err != nil {
			return ref, false, err
		}
		want.After = head.Seq
	}
	if want.Agent, err = s.chooseAgent(ctx, k, want); err != nil {
		return ref, false, err
	}
	want.CommandID, want.Created = want.RunID+".invoke", event.At(time.Now())
	return s.Log.Reserve(ctx, sub.tenant, sub.idempotencyKey, want)
}

// noteRun adds to the record which run the request has started, or one like it before: what a
// key has started is known by nothing else.
func noteRun(ctx context.Context, p runPlace) {
	if c := callOf(ctx); c != nil {
		c.note("session", p.key.Session)
		c.note("run", p.runID)
	}
}

// place puts the run's command into the inbox and has a worker woken, unless an
// earlier request has done so. Once it returns nil the run will be executed, or
// end in a state that can be seen.
func (s *Server) place(ctx context.Context, sub *submission, ref eventlog.RunRef) error {
	noteRun(ctx, placeOf(sub.tenant, ref))
	if ref.Accepted {
		return nil
	}
	k := eventlog.Key{Tenant: sub.tenant, Session: ref.SessionID}
	messages, err := s.named(ctx, k, ref, sub.messages)
	if err != nil {
		return err
	}
	cmd := event.Command{CommandID: ref.CommandID, Kind: event.Invoke, SessionID: ref.SessionID, RunID: ref.RunID,
		TraceID: ref.TraceID, Traceparent: sub.traceparent, Agent: ref.Agent, Messages: messages, Config: sub.config,
		Queue: sub.queue, Resumes: sub.resumes,
		By: sub.by, Time: ref.Created}
	if err := s.Log.Submit(ctx, k, cmd); err != nil {
		return err
	}
	if err := s.Log.Wake(ctx, k); err != nil {
		return err
	}
	return s.Log.Accept(ctx, ref)
}
