package modeltest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// answer plays the step of one request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, p Protocol) {
	req, step := s.take(r, p)
	defer func() { req.end(r.Context().Err() != nil) }()
	if step == nil {
		refuse(w, &Refuse{Status: http.StatusBadRequest}, p, req.Problem)
		return
	}
	if !s.sleep(r.Context(), step.Pace.Start) {
		return
	}
	switch {
	case step.Refuse != nil:
		refuse(w, step.Refuse, p, "scripted refusal")
		return
	case step.Fault == FaultDeaf:
		s.stall(r.Context())
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := &pipe{w: w, flush: http.NewResponseController(w), bytes: step.Pace.Bytes, crlf: step.has(CRLF)}
	s.play(r.Context(), out, step, p)
}

func (s *Step) has(quirk string) bool { return slices.Contains(s.Quirks, quirk) }

// refuse answers as both vendors do.
func refuse(w http.ResponseWriter, r *Refuse, p Protocol, message string) {
	for k, v := range r.Headers {
		w.Header().Set(k, v)
	}
	if r.RetryAfter != "" {
		w.Header().Set("Retry-After", r.RetryAfter)
	}
	body := r.Body
	if body == "" {
		detail := map[string]any{"message": message, "type": errorType(r.Status)}
		outer := map[string]any{"error": detail}
		if p == Anthropic {
			outer["type"] = "error"
		}
		text, _ := json.Marshal(outer)
		body = string(text)
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write([]byte(body))
}

func errorType(status int) string {
	switch {
	case status == 429:
		return "rate_limit_error"
	case status == 529:
		return "overloaded_error"
	case status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}

// play sends the frames of a step up to its fault.
func (s *Server) play(ctx context.Context, out *pipe, step *Step, p Protocol) {
	frames := step.frames(p)
	at := step.faultAt(frames)
	for i, f := range frames {
		if i == at {
			s.fault(ctx, out, step, p)
			return
		}
		if f.delta && !s.sleep(ctx, step.Pace.Delay) {
			return
		}
		if step.has(Pings) {
			out.send(ping(p))
		}
		if out.send(f.text); out.err != nil {
			return
		}
	}
}

func ping(p Protocol) string {
	if p == Anthropic {
		return "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	}
	return ": keep-alive\n\n"
}

// faultAt is the index of the frame that the fault comes before, or -1.
func (s *Step) faultAt(frames []frame) int {
	if s.Fault == "" {
		return -1
	}
	seen := 0
	for i, f := range frames {
		switch {
		case s.After < 0 && f.delta, s.After > 0 && seen == s.After:
			return i
		case f.delta:
			seen++
		case f.last && s.After == 0:
			return i
		case f.last:
			return i + 1
		}
	}
	return len(frames)
}

func (s *Server) fault(ctx context.Context, out *pipe, step *Step, p Protocol) {
	switch step.Fault {
	case FaultError:
		out.send(step.errorFrame(p))
	case FaultStall:
		s.stall(ctx)
	case FaultCut:
		panic(http.ErrAbortHandler)
	}
}

// stall says nothing until the client or the server goes.
func (s *Server) stall(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.closed:
	}
}

// sleep reports whether the client is still there.
func (s *Server) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.closed:
	}
	return false
}

// A pipe writes events in pieces, each one its own TCP write.
type pipe struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	bytes int
	crlf  bool
	err   error
}

func (p *pipe) send(text string) {
	if p.crlf {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	size := p.bytes
	if size <= 0 {
		size = len(text)
	}
	for piece := range slices.Chunk([]byte(text), max(size, 1)) {
		if p.err != nil {
			return
		}
		if _, p.err = p.w.Write(piece); p.err == nil {
			p.err = p.flush.Flush()
		}
	}
}
