package edge

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/openai"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

func (s *Server) openaiRoutes() []route {
	return []route{
		{"POST /v1/responses", vendorErrors(s.createResponse), false},
		{"GET /v1/responses/{response}", vendorErrors(s.getResponse), false},
		{"POST /v1/responses/{response}/cancel", vendorErrors(s.cancelResponse), false},
		{"GET /v1/responses/{response}/input_items", vendorErrors(s.inputItems), false},
		{"DELETE /v1/responses/{response}", vendorErrors(s.deleteResponse), false},
		{"POST /v1/chat/completions", vendorErrors(s.createCompletion), false},
	}
}

// vendorErrors keeps OpenAI's SDKs from repeating what would be refused again, or
// would be done twice: they repeat 409 and all of 5xx, without an idempotency key
// unless their user gives one.
func vendorErrors(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, c *call) error {
		err := h(w, r, c)
		if err == nil || errors.Is(err, errDraining) {
			return err
		}
		status := toProblem(err).Status
		twice := r.Method == http.MethodPost && r.Header.Get("Idempotency-Key") == ""
		if status == http.StatusConflict || status >= 500 && twice {
			w.Header().Set("X-Should-Retry", "false")
		}
		return err
	}
}

// A responseRef is a response: a run, or what follows of one that was parked.
type responseRef struct {
	ref   eventlog.RunRef
	place runPlace // of the run
}

func (p responseRef) dialect() openai.Responses {
	d := openai.Responses{ID: p.ref.RunID, Run: p.place.runID, Agent: p.place.agent, Created: p.place.since.Unix()}
	if p.ref.Continues != "" {
		d.From = p.ref.After
	}
	return d
}

// findResponse finds a response by its id, which may be that of any run.
func (s *Server) findResponse(ctx context.Context, c *call, id string) (responseRef, error) {
	c.note("run", id)
	if event.CheckID("response id", id) != nil {
		return responseRef{}, notFound("response", id)
	}
	ref, err := s.Log.FindRun(ctx, c.who.Tenant, id)
	if err == nil && ref.Continues != "" {
		p, err := s.findRun(ctx, c, ref.Continues)
		return responseRef{ref, p}, err
	}
	p, err := s.findRun(ctx, c, id)
	return responseRef{eventlog.RunRef{RunID: id, SessionID: p.key.Session, TraceID: p.traceID, Agent: p.agent}, p}, err
}

// createResponse starts a run, or gives a parked one what it waits for.
func (s *Server) createResponse(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.maxHistory())
	if err != nil {
		return err
	}
	in, err := readResponses(body)
	if err != nil {
		return err
	}
	at, place, err := s.acceptResponse(r, c, in, body)
	if err != nil {
		return err
	}
	switch {
	case in.Stream:
		return s.responseStream(w, r, c, at, stream.Position{}, place)
	case in.Background:
		if err := place(r.Context()); err != nil {
			return err
		}
		return s.writeResponse(w, r, c, at, false)
	}
	if err := place(r.Context()); err != nil {
		return err
	}
	return s.writeResponse(w, r, c, at, true)
}

// acceptResponse makes the entry of what a request wants; place has it executed.
func (s *Server) acceptResponse(r *http.Request, c *call, in *responsesInput, body []byte) (responseRef, func(context.Context) error, error) {
	ctx := r.Context()
	fold := event.NewSession("")
	session := in.conversation()
	if in.Previous != "" {
		prev, err := s.findResponse(ctx, c, in.Previous)
		if err != nil {
			return responseRef{}, nil, err
		}
		session = prev.place.key.Session
	}
	if session != "" {
		if err := event.CheckID("conversation", session); err != nil {
			return responseRef{}, nil, bad("conversation", "%s", err)
		}
		var err error
		if fold, _, err = s.Log.Load(ctx, eventlog.Key{Tenant: c.who.Tenant, Session: session}); err != nil {
			return responseRef{}, nil, err
		}
	}
	if in.answersOnly() && session != "" {
		return s.continueResponse(ctx, c, in, fold)
	}
	sub, err := s.responseSubmission(r, c, in, fold, session, body)
	if err != nil {
		return responseRef{}, nil, err
	}
	ref, _, err := s.reserve(ctx, sub)
	at := responseRef{ref, placeOf(c.who.Tenant, ref)}
	return at, func(ctx context.Context) error { return s.place(ctx, sub, ref) }, err
}

func (s *Server) responseSubmission(r *http.Request, c *call, in *responsesInput, fold *event.Session, session string, body []byte) (*submission, error) {
	messages, err := s.responseMessages(r.Context(), c, in, fold)
	if err != nil {
		return nil, err
	}
	req := runRequest{Agent: in.Model, SessionID: session, Config: clientTools(in.functions())}
	if fold.Parked() != nil {
		req.Queue = event.Interrupt
	}
	if err := req.refuse(); err != nil {
		return nil, err
	}
	sub := &submission{tenant: c.who.Tenant, by: caller(c), messages: messages, config: req.Config, queue: req.Queue,
		want: eventlog.RunRef{RunID: event.NewID("resp"), SessionID: session, Agent: in.Model, BodyHash: bodyHash(r.URL.Path, body)}}
	sub.traceparent, sub.want.TraceID = trace(r, "")
	sub.idempotencyKey, err = idempotencyKey(r)
	return sub, err
}

// continueResponse answers what a conversation's run waits for. The same answers
// again are the same response.
func (s *Server) continueResponse(ctx context.Context, c *call, in *responsesInput, fold *event.Session) (responseRef, func(context.Context) error, error) {
	id := derivedID("resp", fold.SessionID, in.Previous, string(event.Encode(in.items)))
	ref, err := s.Log.FindRun(ctx, c.who.Tenant, id)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return responseRef{}, nil, err
	}
	place := placed
	if err != nil || !ref.Accepted {
		answers, err := in.answers(fold)
		if err != nil {
			return responseRef{}, nil, err
		}
		if ref, err = s.continues(ctx, c, fold, id, bodyHash("responses", []byte(id))); err != nil {
			return responseRef{}, nil, err
		}
		place = func(ctx context.Context) error { return s.answer(ctx, c, ref, answers) }
	}
	p, err := s.findRun(ctx, c, ref.Continues)
	return responseRef{ref, p}, place, err
}

// responseStream streams a response from a position.
func (s *Server) responseStream(w http.ResponseWriter, r *http.Request, c *call, at responseRef, after stream.Position, place func(context.Context) error) error {
	req := stream.Request{Transport: stream.SSE{}, Dialect: at.dialect(), After: after, Numbered: true, Empty: true, Seen: s.metrics.firsts(c.began)}
	at.place.into(&req)
	from := at.dialect().From
	req.Ends = func(e event.Event) bool { return e.Seq > from && parks(e) }
	return s.startStream(w, r, c, req, starting{start: place, name: func() { s.nameRun(w, c, at.ref) }})
}

// getResponse answers with a response as it is, or with its events after
// starting_after.
func (s *Server) getResponse(w http.ResponseWriter, r *http.Request, c *call) error {
	at, err := s.findResponse(r.Context(), c, r.PathValue("response"))
	if err != nil {
		return err
	}
	streams, err := boolParam(r, "stream", false)
	if err != nil {
		return err
	}
	if !streams {
		return s.writeResponse(w, r, c, at, false)
	}
	after, err := startingAfter(r)
	if err != nil {
		return err
	}
	return s.responseStream(w, r, c, at, after, placed)
}

// startingAfter is a position by the number of the last message that a client has.
func startingAfter(r *http.Request) (stream.Position, error) {
	v := r.URL.Query().Get("starting_after")
	if v == "" {
		return stream.Position{}, nil
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		return stream.Position{}, bad("starting_after", "starting_after=%s is not the sequence_number of an event", v)
	}
	seq, sub := event.Seq(n/openai.Stride), int(n%openai.Stride)
	if seq == 0 {
		return stream.Position{}, nil
	}
	return stream.Position{Seq: seq - 1, Sub: sub + 1}, nil
}

// writeResponse answers with a response as it is now, or when it is over, but no
// later than a request may wait.
func (s *Server) writeResponse(w http.ResponseWriter, r *http.Request, c *call, at responseRef, wait bool) error {
	made, err := s.makeResponse(r.Context(), at, wait)
	if err != nil {
		return err
	}
	s.nameRun(w, c, at.ref)
	writeJSON(w, http.StatusOK, made.JSON())
	return nil
}

// makeResponse reads a response from the log.
func (s *Server) makeResponse(ctx context.Context, at responseRef, wait bool) (*openai.Response, error) {
	d := &madeResponse{at.dialect(), openai.NewResponse(at.dialect())}
	from := d.From
	err := s.readThrough(ctx, at, stream.Request{Dialect: d, NoFollow: !wait, Ends: func(e event.Event) bool { return e.Seq > from && parks(e) }})
	return d.made, err
}

// readThrough encodes a response for nobody, to its end or as far as it gets in
// the time that a request may wait.
func (s *Server) readThrough(ctx context.Context, at responseRef, req stream.Request) error {
	ctx, done, err := s.admit(ctx)
	if err != nil {
		return err
	}
	defer done()
	reading, cancel := patience(ctx, s.opts.MaxWait)
	defer cancel()
	req.Transport = stream.SSE{}
	at.place.into(&req)
	v, err := s.hub.View(ctx, req)
	if err != nil {
		return err
	}
	defer v.Close()
	if _, err := v.Prepare(ctx); err != nil {
		return err
	}
	if err = v.Serve(reading, nowhere{http.Header{}}); reading.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// madeResponse is the dialect of one response that is wanted as a whole.
type madeResponse struct {
	openai.Responses
	made *openai.Response
}

// Begin returns the response that is wanted.
func (m *madeResponse) Begin() dialect.Encoder { return m.made }

// nowhere takes what nobody reads.
type nowhere struct{ h http.Header }

func (n nowhere) Header() http.Header              { return n.h }
func (nowhere) Write(b []byte) (int, error)        { return len(b), nil }
func (nowhere) WriteHeader(int)                    {}
func (nowhere) Flush()                             {}
func (nowhere) SetWriteDeadline(_ time.Time) error { return nil }

// cancelResponse cancels the run of a response, and answers when it is over.
func (s *Server) cancelResponse(w http.ResponseWriter, r *http.Request, c *call) error {
	at, err := s.findResponse(r.Context(), c, r.PathValue("response"))
	if err != nil {
		return err
	}
	if _, err := s.cancel(r.Context(), c, at.place, "", true); err != nil {
		return err
	}
	return s.writeResponse(w, r, c, at, false)
}
