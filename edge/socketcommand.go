package edge

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// A socketCommand is what a client wants of a run, over its WebSocket. It is what
// the route of the same purpose takes, and is answered as that would.
type socketCommand struct {
	ID             string          `json:"id"` // comes back in the answer
	Do             string          `json:"do"`
	RunID          string          `json:"run_id"`  // may be left out on a run's socket
	CallID         string          `json:"call_id"` // of approve, deny and tool_result
	IdempotencyKey string          `json:"idempotency_key"`
	Body           json.RawMessage `json:"body"` // of the route
}

// A socketAnswer is a command's.
type socketAnswer struct {
	Answer string          `json:"answer"` // the command's id
	Status int             `json:"status"` // as of HTTP
	Body   json.RawMessage `json:"body"`   // the route's answer, or a problem
}

// command starts one, and waits while too many are under way.
func (k *socket) command(raw []byte) {
	var cmd socketCommand
	err := decode(raw, &cmd)
	if err == nil && (cmd.ID == "" || len(cmd.ID) > 255) {
		err = bad("id", "a command has an id of 1 to 255 bytes, which its answer repeats")
	}
	if err != nil {
		k.answer(cmd.ID, func(w http.ResponseWriter) { writeProblem(w, toProblem(err)) })
		return
	}
	select {
	case k.busy <- struct{}{}:
	case <-k.ctx.Done():
		return
	}
	k.srv.takenOver.Add(1)
	go func() {
		defer k.srv.takenOver.Done()
		defer func() { <-k.busy }()
		k.answer(cmd.ID, func(w http.ResponseWriter) { k.do(w, cmd) })
	}()
}

// answer sends what a handler writes.
func (k *socket) answer(id string, handle func(http.ResponseWriter)) {
	w := &kept{header: http.Header{}, status: http.StatusOK}
	handle(w)
	body := bytes.TrimSpace(w.body.Bytes())
	if len(body) == 0 {
		body = []byte("{}")
	}
	_ = k.send(socketAnswer{id, w.status, body}) // if the client has left, it asks again
}

// do has the route's handler do it.
func (k *socket) do(w http.ResponseWriter, cmd socketCommand) {
	c := &call{id: event.NewID("req"), who: k.call.who, client: k.call.client, began: time.Now()}
	route, h := k.srv.commandRoute(cmd.Do)
	body, err := cmd.body()
	r, newErr := http.NewRequestWithContext(k.ctx, http.MethodPost, "/", bytes.NewReader(body))
	if newErr != nil {
		err = newErr
	}
	if err != nil {
		writeProblem(w, toProblem(err))
		return
	}
	defer func() { _ = recover() }() // conclude has logged it, and the answer is an error or nothing
	a := &answer{ResponseWriter: w, call: c}
	defer k.srv.conclude(a, c)
	r.URL.Path, c.route = strings.TrimPrefix(route, "POST "), route
	c.method, c.path = r.Method, r.URL.Path
	run := cmd.RunID
	if run == "" {
		run = k.req.PathValue("run")
	}
	r.SetPathValue("run", run)
	r.SetPathValue("call", cmd.CallID)
	if cmd.IdempotencyKey != "" {
		r.Header.Set("Idempotency-Key", cmd.IdempotencyKey)
	}
	switch {
	case h == nil:
		err = bad("do", "do: %q is none of cancel, stop, steer, approve, deny, tool_result", cmd.Do)
	case c.who.Grant != nil && !c.who.Grant.Commands:
		err = problem(http.StatusForbidden, event.CodeForbidden, `the token may only follow; ask for one with "commands": true`)
	default:
		err = h(a, r, c)
	}
	if err != nil {
		c.fail(a, r, err)
	}
}

func (s *Server) commandRoute(do string) (route string, h handler) {
	switch do {
	case "cancel":
		return "POST /v1/runs/{run}/cancel", s.cancelRun
	case "stop":
		return "POST /v1/runs/{run}/stop", s.stopRun
	case "steer":
		return "POST /v1/runs/{run}/steer", s.steer
	case "approve", "deny":
		return "POST /v1/runs/{run}/approvals/{call}", s.decide
	case "tool_result":
		return "POST /v1/runs/{run}/tools/{call}", s.toolResult
	}
	return "none", nil
}

// body is what the route takes: approve and deny are told by their names.
func (cmd socketCommand) body() ([]byte, error) {
	if cmd.Do != "approve" && cmd.Do != "deny" {
		return cmd.Body, nil
	}
	fields := map[string]json.RawMessage{}
	if err := decode(cmd.Body, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	for name := range fields {
		if strings.EqualFold(name, "decision") {
			return nil, bad("body", "do says %s; its body has no decision", cmd.Do)
		}
	}
	fields["decision"] = event.Encode(cmd.Do)
	return event.Encode(fields), nil
}

// kept is an answer that is kept.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *kept) Header() http.Header         { return w.header }
func (w *kept) WriteHeader(status int)      { w.status = status }
func (w *kept) Write(b []byte) (int, error) { return w.body.Write(b) }
