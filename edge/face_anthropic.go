package edge

import (
	"context"
	"errors"
	"net/http"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/anthropic"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

func (s *Server) anthropicRoutes() []route {
	return []route{{"POST /v1/messages", vendorErrors(s.postMessage), false}}
}

// A messageRef is a message: a run, or what follows of one that was parked.
type messageRef struct {
	ref   eventlog.RunRef
	run   runPlace
	place func(context.Context) error
}

func (m messageRef) dialect() anthropic.Dialect {
	if m.ref.Continues == "" {
		return anthropic.Dialect{}
	}
	return anthropic.Dialect{From: m.ref.After}
}

// postMessage runs the agent that model names on a conversation. The header
// Runlog-Session-Id continues a session, where results of the client's tools go to
// the run that waits for them; without it every request is a session of its own.
// The same Idempotency-Key again is the same message, from its start.
func (s *Server) postMessage(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.maxHistory())
	if err != nil {
		return err
	}
	in, err := readAnthropic(body)
	if err != nil {
		return err
	}
	at, err := s.acceptMessage(r, c, in, body)
	if err != nil {
		return err
	}
	if in.Stream {
		return s.messageStream(w, r, c, at)
	}
	return s.wholeMessage(w, r, c, at)
}

func (s *Server) acceptMessage(r *http.Request, c *call, in *anthropicInput, body []byte) (messageRef, error) {
	session := r.Header.Get("Runlog-Session-Id")
	fold := event.NewSession(session)
	if session != "" {
		if err := event.CheckID("session id", session); err != nil {
			return messageRef{}, bad("Runlog-Session-Id", "%s", err)
		}
		var err error
		if fold, _, err = s.Log.Load(r.Context(), eventlog.Key{Tenant: c.who.Tenant, Session: session}); err != nil {
			return messageRef{}, err
		}
	}
	answers, id, err := in.answers(fold)
	if err != nil {
		return messageRef{}, err
	}
	if len(answers) > 0 {
		return s.continueMessage(r.Context(), c, fold, id, answers)
	}
	messages, err := in.messages()
	if err != nil {
		return messageRef{}, err
	}
	config, err := in.config()
	if err != nil {
		return messageRef{}, err
	}
	req := runRequest{Agent: in.Model, SessionID: session, Config: config}
	if fold.Parked() != nil {
		req.Queue = event.Interrupt
	}
	if err := req.refuse(); err != nil {
		return messageRef{}, err
	}
	sub := &submission{tenant: c.who.Tenant, by: caller(c), messages: messages, config: req.Config, queue: req.Queue,
		want: eventlog.RunRef{RunID: event.NewID("msg"), SessionID: session, Agent: in.Model, BodyHash: bodyHash(r.URL.Path, body)}}
	sub.traceparent, sub.want.TraceID = trace(r, "")
	if sub.idempotencyKey, err = idempotencyKey(r); err != nil {
		return messageRef{}, err
	}
	ref, _, err := s.reserve(r.Context(), sub)
	return messageRef{ref, placeOf(sub.tenant, ref), func(ctx context.Context) error { return s.place(ctx, sub, ref) }}, err
}

// continueMessage gives a parked run what it waits for. The same results again
// are the same message.
func (s *Server) continueMessage(ctx context.Context, c *call, fold *event.Session, id string, answers []event.Command) (messageRef, error) {
	place := placed
	ref, err := s.Log.FindRun(ctx, c.who.Tenant, id)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return messageRef{}, err
	}
	if err != nil || !ref.Accepted {
		if fold.Parked() == nil {
			return messageRef{}, problem(http.StatusConflict, event.CodeConflict, "nothing in this session waits for these results: they were given already, or their time is over")
		}
		if ref, err = s.continues(ctx, c, fold, id, bodyHash("messages", []byte(id))); err != nil {
			return messageRef{}, err
		}
		place = func(ctx context.Context) error { return s.answer(ctx, c, ref, answers) }
	}
	run, err := s.findRun(ctx, c, ref.Continues)
	return messageRef{ref, run, place}, err
}

func (s *Server) messageStream(w http.ResponseWriter, r *http.Request, c *call, at messageRef) error {
	return s.startStream(w, r, c, s.messageRequest(c, at, at.dialect()), starting{start: at.place, name: func() { s.nameRun(w, c, at.ref) }})
}

func (s *Server) messageRequest(c *call, at messageRef, d dialect.Dialect) stream.Request {
	req := stream.Request{Transport: stream.SSE{}, Dialect: d, Seen: s.metrics.firsts(c.began)}
	at.run.into(&req)
	from := at.dialect().From
	req.Ends = func(e event.Event) bool { return e.Seq > from && waitsForClient(e) }
	return req
}

// waitsForClient reports whether an event parks its run for its client's tools.
func waitsForClient(e event.Event) bool {
	var d event.RunStatusData
	return parks(e) && e.Into(&d) == nil && d.Status == event.WaitingTool
}

// wholeMessage answers when the message has ended.
func (s *Server) wholeMessage(w http.ResponseWriter, r *http.Request, c *call, at messageRef) error {
	ctx, done, err := s.admit(r.Context())
	if err != nil {
		return err
	}
	defer done()
	reading, cancel := patience(ctx, s.opts.MaxWait)
	defer cancel()
	d := &madeMessage{at.dialect(), anthropic.NewMessage(at.dialect())}
	v, err := s.hub.View(ctx, s.messageRequest(c, at, d))
	if err != nil {
		return err
	}
	defer v.Close()
	if err := at.place(ctx); err != nil {
		return err
	}
	if _, err := v.Prepare(ctx); err != nil {
		return err
	}
	err = v.Serve(reading, nowhere{http.Header{}})
	s.nameRun(w, c, at.ref)
	switch failed := d.made.Failed(); {
	case failed != nil:
		return problem(http.StatusBadGateway, failed.Code, "the run failed: %s", failed.Message)
	case d.made.Over():
		writeJSON(w, http.StatusOK, d.made.JSON())
		return nil
	case err != nil && reading.Err() != nil && ctx.Err() == nil:
		return problem(http.StatusGatewayTimeout, event.CodeUnavailable, "the run takes longer than a request may: stream it, or ask again with the same Idempotency-Key")
	}
	return err
}

// madeMessage is the dialect of one message that is wanted as a whole.
type madeMessage struct {
	anthropic.Dialect
	made *anthropic.Message
}

// Begin returns the message that is wanted.
func (m *madeMessage) Begin() dialect.Encoder { return m.made }
