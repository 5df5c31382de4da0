package edge

import (
	"context"
	"errors"
	"net/http"
	"strconv"

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

func responseDialect(n *namedRun) openai.Responses {
	return openai.Responses{ID: n.ref.RunID, Run: n.place.runID, Agent: n.place.agent, Created: n.place.since.Unix(), From: n.from()}
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
	n, err := s.acceptResponse(r, c, in, body)
	if err != nil {
		return err
	}
	if in.Stream {
		return s.responseStream(w, r, c, n, stream.Position{})
	}
	return s.writeResponse(w, r, c, n, !in.Background)
}

// acceptResponse makes the entry of what a request wants.
func (s *Server) acceptResponse(r *http.Request, c *call, in *responsesInput, body []byte) (*namedRun, error) {
	ctx := r.Context()
	fold := event.NewSession("")
	session := in.conversation()
	if in.Previous != "" {
		prev, err := s.findNamed(ctx, c, in.Previous)
		if err != nil {
			return nil, err
		}
		session = prev.place.key.Session
	}
	if session != "" {
		if err := event.CheckID("conversation", session); err != nil {
			return nil, bad("conversation", "%s", err)
		}
		var err error
		if fold, err = s.load(ctx, eventlog.Key{Tenant: c.who.Tenant, Session: session}); err != nil {
			return nil, err
		}
	}
	if in.answersOnly() && session != "" {
		id := derivedID("resp", session, in.Previous, string(event.Encode(in.items)))
		return s.continueNamed(ctx, c, fold, id, "responses", func() ([]event.Command, error) { return in.answers(fold) })
	}
	sub, err := s.responseSubmission(r, c, in, fold, session, body)
	if err != nil {
		return nil, err
	}
	n, _, err := s.reserveNamed(ctx, sub)
	return n, err
}

func (s *Server) responseSubmission(r *http.Request, c *call, in *responsesInput, fold *event.Session, session string, body []byte) (*submission, error) {
	messages, err := s.responseMessages(r.Context(), c, in, fold)
	if err != nil {
		return nil, err
	}
	req := runRequest{RunID: event.NewID("resp"), Agent: in.Model, SessionID: session, Config: clientTools(in.functions()),
		Queue: inPlaceOfAnAnswer(fold, "")}
	return submissionOf(r, c, req, messages, bodyHash(r.URL.Path, body))
}

// responseStream streams a response from a position.
func (s *Server) responseStream(w http.ResponseWriter, r *http.Request, c *call, n *namedRun, after stream.Position) error {
	req := stream.Request{Transport: stream.SSE{}, Dialect: responseDialect(n), After: after, Ends: parksAfter(n.from()),
		Numbered: true, Empty: true}
	return s.startStream(w, r, c, n, req)
}

// getResponse answers with a response as it is, or with its events after
// starting_after.
func (s *Server) getResponse(w http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.findNamed(r.Context(), c, r.PathValue("response"))
	if err != nil {
		return err
	}
	streams, err := boolParam(r, "stream", false)
	if err != nil {
		return err
	}
	if !streams {
		return s.writeResponse(w, r, c, n, false)
	}
	after, err := startingAfter(r)
	if err != nil {
		return err
	}
	return s.responseStream(w, r, c, n, after)
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
	seq, sub := event.Seq(n/openai.Stride), int32(n%openai.Stride)
	if seq == 0 {
		return stream.Position{}, nil
	}
	return stream.Position{Seq: seq - 1, Sub: sub + 1}, nil
}

// writeResponse answers with a response as it is now, or when it is over, but no
// later than a request may wait.
func (s *Server) writeResponse(w http.ResponseWriter, r *http.Request, c *call, n *namedRun, wait bool) error {
	made, err := s.makeResponse(r.Context(), n, wait)
	if err != nil {
		return err
	}
	s.nameRun(w, c, n.ref)
	writeJSON(w, http.StatusOK, made.JSON())
	return nil
}

// makeResponse reads a response from the log.
func (s *Server) makeResponse(ctx context.Context, n *namedRun, wait bool) (*openai.Response, error) {
	d := responseDialect(n)
	made := openai.NewResponse(d)
	err := s.readThrough(ctx, n.place, n.start, stream.Request{Dialect: dialect.With(d, made), NoFollow: !wait, Ends: parksAfter(d.From)})
	return made, err
}

// cancelResponse cancels the run of a response, and answers when it is over.
func (s *Server) cancelResponse(w http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.findNamed(r.Context(), c, r.PathValue("response"))
	if err != nil {
		return err
	}
	if _, err := s.cancel(r.Context(), c, n.place, "", true); err != nil {
		return err
	}
	return s.writeResponse(w, r, c, n, false)
}
