package edge

import (
	"errors"
	"net/http"

	"github.com/runlog-dev/runlog/event"
)

// A handler answers a request, or returns an error before it has written
// anything: toProblem makes the answer of it.
type handler func(http.ResponseWriter, *http.Request, *call) error

// A route is a pattern with what answers there.
type route struct {
	pattern string
	handler handler
	open    bool // needs no key
}

// table is every route that is built; openapi.json describes them.
func (s *Server) table() []route {
	return []route{
		{"GET /healthz", s.healthz, true},
		{"GET /readyz", s.readyz, true},
		{"GET /openapi.json", s.openAPI, true},
		{"POST /v1/runs", s.postRun, false},
		{"GET /v1/runs", s.listRuns, false},
		{"GET /v1/runs/{run}", s.getRun, false},
		{"GET /v1/runs/{run}/events", s.follower(s.runEvents), true},
		{"POST /v1/runs/{run}/cancel", s.cancelRun, false},
		{"POST /v1/runs/{run}/stop", s.stopRun, false},
		{"POST /v1/runs/{run}/resume", s.resumeRun, false},
		{"POST /v1/runs/{run}/steer", s.steer, false},
		{"POST /v1/runs/{run}/approvals/{call}", s.decide, false},
		{"POST /v1/runs/{run}/tools/{call}", s.toolResult, false},
		{"GET /v1/dlq", s.listDead, false},
		{"GET /v1/dlq/{run}", s.getDead, false},
		{"POST /v1/dlq/{run}/redrive", s.redrive, false},
		{"DELETE /v1/dlq/{run}", s.dropDead, false},
		{"GET /v1/sessions/{session}", s.getSession, false},
		{"GET /v1/sessions/{session}/events", s.follower(s.sessionEvents), true},
		{"GET /v1/sessions/{session}/snapshot", s.getSnapshot, false},
		{"GET /v1/sessions/{session}/messages", s.getMessages, false},
		{"GET /v1/traces/{trace}", s.getTrace, false},
		{"GET /v1/traces/{trace}/events", s.traceEvents, false},
		{"GET /v1/stream", s.follower(s.manySessions), true},
		{"POST /v1/tokens", s.postToken, false},
		{"GET /v1/agents", s.listAgents, false},
		{"GET /artifacts/{artifact}", s.getArtifact, false},
		{"GET /v1/artifacts/{artifact}", s.statArtifact, false},
		{"POST /v1/artifacts", s.postArtifact, false},
		{"POST /chat", s.chat, false},
		{"POST /rpc", s.rpc, false},
	}
}

// routes is what answers to every request.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range append(s.table(), s.faces()...) {
		mux.Handle(r.pattern, s.endpoint(r.handler, !r.open))
	}
	for pattern, what := range notBuilt {
		mux.Handle(pattern, s.endpoint(func(http.ResponseWriter, *http.Request, *call) error {
			return problem(http.StatusNotImplemented, event.CodeUnsupported, "%s is not built yet", what)
		}, true))
	}
	return s.around(mux)
}

// notBuilt are routes of the contract that this version refuses.
var notBuilt = map[string]string{
	"POST /v1/sessions":                "creating a session without a run",
	"POST /v1/sessions/{session}/fork": "forking a session",
	"DELETE /v1/sessions/{session}":    "erasing a session",
}

// endpoint checks limits, identifies the caller, and answers for the handler if it
// returns an error.
func (s *Server) endpoint(h handler, needsKey bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		c.route = r.Pattern
		err := s.limitAddress(w, c)
		if err == nil {
			err = s.identify(r, c, needsKey)
		}
		if err == nil {
			err = s.limitRate(w, c)
		}
		if err == nil && (needsKey || !isWebSocket(r)) { // a follower's WebSocket is told after its handshake
			err = checkQuery(r, r.Pattern)
		}
		if err == nil {
			err = h(w, r, c)
		}
		if err != nil {
			s.fail(w, c, err)
		}
	})
}

// unrouted answers for a path that is not served, or not with this method. It reports
// whether it has answered.
func (s *Server) unrouted(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) bool {
	h, pattern := mux.Handler(r)
	if _, ours := h.(http.HandlerFunc); ours && pattern != "" { // else it leads to the pattern
		return false
	}
	c := callOf(r.Context())
	if err := s.limitAddress(w, c); err != nil {
		s.fail(w, c, err)
		return true
	}
	probe := &headerOnly{h: http.Header{}}
	h.ServeHTTP(probe, r)
	switch {
	case probe.status == http.StatusMethodNotAllowed:
		p := problem(probe.status, event.CodeBadRequest, "%s does not take %s; use %s", r.URL.Path, r.Method, probe.h.Get("Allow"))
		p.allow = probe.h.Get("Allow")
		s.fail(w, c, p)
	case probe.status >= 300 && probe.status < 400: // //v1/runs is at /v1/runs
		w.Header().Set("Location", probe.h.Get("Location"))
		writeProblem(w, problem(probe.status, event.CodeNotFound, "there is nothing at %s; Location says where it is", r.URL.Path))
	default:
		s.fail(w, c, problem(http.StatusNotFound, event.CodeNotFound, "there is nothing at %s; see /openapi.json", r.URL.Path))
	}
	return true
}

// headerOnly notes what a handler would answer.
type headerOnly struct {
	h      http.Header
	status int
}

func (p *headerOnly) Header() http.Header         { return p.h }
func (p *headerOnly) WriteHeader(status int)      { p.status = status }
func (p *headerOnly) Write(b []byte) (int, error) { return len(b), nil }

// errAborted marks an answer that had begun and could not be finished.
var errAborted = errors.New("aborted")
