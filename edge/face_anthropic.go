package edge

import (
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
	n, err := s.acceptMessage(r, c, in, body)
	if err != nil {
		return err
	}
	d := anthropic.Dialect{From: n.from()}
	if in.Stream {
		return s.startStream(w, r, c, n, messageRequest(n, d))
	}
	return s.wholeMessage(w, r, c, n, d)
}

func (s *Server) acceptMessage(r *http.Request, c *call, in *anthropicInput, body []byte) (*namedRun, error) {
	session := r.Header.Get("Runlog-Session-Id")
	fold := event.NewSession(session)
	if session != "" {
		if err := event.CheckID("session id", session); err != nil {
			return nil, bad("Runlog-Session-Id", "%s", err)
		}
		var err error
		if fold, err = s.load(r.Context(), eventlog.Key{Tenant: c.who.Tenant, Session: session}); err != nil {
			return nil, err
		}
	}
	answers, id, err := in.answers(fold)
	if err != nil {
		return nil, err
	}
	if len(answers) > 0 {
		return s.continueNamed(r.Context(), c, fold, id, "messages", func() ([]event.Command, error) {
			if fold.Parked() == nil {
				return nil, nothingWaits("session")
			}
			return answers, nil
		})
	}
	messages, err := in.messages()
	if err != nil {
		return nil, err
	}
	config, err := in.config()
	if err != nil {
		return nil, err
	}
	req := runRequest{RunID: event.NewID("msg"), Agent: in.Model, SessionID: session, Config: config, Queue: inPlaceOfAnAnswer(fold, "")}
	sub, err := submissionOf(r, c, req, messages, bodyHash(r.URL.Path, body))
	if err != nil {
		return nil, err
	}
	n, _, err := s.reserveNamed(r.Context(), sub)
	return n, err
}

// messageRequest is a stream of the message, to where its run ends or waits for its client.
func messageRequest(n *namedRun, d dialect.Dialect) stream.Request {
	from := n.from()
	return stream.Request{Transport: stream.SSE{}, Dialect: d, Ends: func(e event.Event) bool { return e.Seq > from && waitsForClient(e) }}
}

// waitsForClient reports whether an event parks its run for its client's tools.
func waitsForClient(e event.Event) bool {
	var d event.RunStatusData
	return parks(e) && e.Into(&d) == nil && d.Status == event.WaitingTool
}

// wholeMessage answers when the message has ended.
func (s *Server) wholeMessage(w http.ResponseWriter, r *http.Request, c *call, n *namedRun, d anthropic.Dialect) error {
	made := anthropic.NewMessage(d)
	if err := s.readThrough(r.Context(), n.place, n.start, messageRequest(n, dialect.With(d, made))); err != nil {
		return err
	}
	s.nameRun(w, c, n.ref)
	switch failed := made.Failed(); {
	case failed != nil:
		return problem(http.StatusBadGateway, failed.Code, "the run failed: %s", failed.Message)
	case made.Over():
		writeJSON(w, http.StatusOK, made.JSON())
		return nil
	}
	return problem(http.StatusGatewayTimeout, event.CodeUnavailable, "the run takes longer than a request may: stream it, or ask again with the same Idempotency-Key")
}
