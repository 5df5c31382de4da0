package edge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
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
	Answer     string          `json:"answer"`                // the command's id
	Status     int             `json:"status"`                // as of HTTP
	RetryAfter int             `json:"retry_after,omitempty"` // seconds, as of HTTP
	Body       json.RawMessage `json:"body"`                  // the route's answer, or a problem
}

// command starts one, whose message has a share in what bodies may take. It does not
// wait for its turn: the client's pongs, and its goodbye, are read behind it.
func (k *socket) command(raw []byte, share *bodyShare) {
	var cmd socketCommand
	err := decode(raw, &cmd)
	if err == nil && (cmd.ID == "" || len(cmd.ID) > 255) {
		err = bad("id", "a command has an id of 1 to 255 bytes, which its answer repeats")
	}
	select {
	case k.held <- struct{}{}:
	default:
		share.GiveUp()
		k.answer(cmd.ID, func(w http.ResponseWriter) { writeProblem(w, k.noMore()) })
		return
	}
	k.srv.takenOver.Add(1)
	go func() {
		defer k.srv.takenOver.Done()
		defer func() { <-k.held }()
		defer share.GiveUp()
		k.busy <- struct{}{} // a client that has left waits for nothing: turns come soon
		defer func() { <-k.busy }()
		k.answer(cmd.ID, func(w http.ResponseWriter) { k.do(w, cmd, err) })
	}()
}

// noMore is why a command is not taken.
func (k *socket) noMore() *Problem {
	select {
	case <-k.over:
		return problem(http.StatusServiceUnavailable, event.CodeUnavailable, "this WebSocket is about to be closed; ask again over another one")
	default:
		return problem(http.StatusTooManyRequests, event.CodeRateLimited, "%d commands of this WebSocket are not answered yet; wait for their answers", commandsHeld)
	}
}

// answer sends what a handler writes.
func (k *socket) answer(id string, handle func(http.ResponseWriter)) {
	w := &kept{header: http.Header{}, status: http.StatusOK}
	handle(w)
	body := bytes.TrimSpace(w.body.Bytes())
	if len(body) == 0 {
		body = []byte("{}")
	}
	after, _ := strconv.Atoi(w.header.Get("Retry-After"))
	_ = k.send(socketAnswer{id, w.status, after, body}) // if the client has left, it asks again
}

// do has the route's handler do what a command says, unless something is wrong with
// it. As over HTTP it is done whether its client stays or not, who may be there no
// longer than it takes to say it.
func (k *socket) do(w http.ResponseWriter, cmd socketCommand, wrong error) {
	route, h := k.srv.commandRoute(cmd.Do)
	c := &call{id: event.NewID("req"), hub: k.srv.hub, client: k.call.client, began: time.Now(), route: route,
		method: http.MethodPost, path: strings.TrimPrefix(route, "POST ")}
	c.share = k.srv.bodyShare()
	defer c.share.GiveUp()
	defer func() { c.held.Drop() }()
	ctx, done := detached(k.ctx)
	defer done()
	defer func() { _ = recover() }() // conclude has logged it, and the answer is an error or nothing
	a := &answer{ResponseWriter: w, call: c}
	defer k.srv.conclude(a, c)
	r, err := cmd.request(context.WithValue(ctx, callKey{}, c), c.path, k.req.PathValue("run"))
	if admitted := k.admit(a, c); admitted != nil {
		err = admitted
	} else if wrong != nil {
		err = wrong
	}
	if err == nil && h == nil {
		err = bad("do", "do: %q is none of cancel, stop, steer, approve, deny, tool_result", cmd.Do)
	}
	if err == nil {
		err = h(a, r, c)
	}
	if err != nil {
		k.srv.fail(a, c, err)
	}
}

// admit asks anew who the client is, for each command: its token may have expired
// since it came, its key may have been revoked. A command counts as a request.
func (k *socket) admit(w http.ResponseWriter, c *call) error {
	if err := k.srv.limitAddress(w, c); err != nil {
		return err
	}
	who, err := k.srv.gate.Follower(context.WithoutCancel(k.ctx), k.secret)
	if err != nil {
		return err
	}
	c.who = who
	if err := k.srv.limitRate(w, c); err != nil {
		return err
	}
	if who.Grant != nil && !who.Grant.Commands {
		return problem(http.StatusForbidden, event.CodeForbidden, `the token may only follow; ask for one with "commands": true`)
	}
	return nil
}

// request is what a client would send to the route. run is the one of the WebSocket.
func (cmd socketCommand) request(ctx context.Context, path, run string) (*http.Request, error) {
	body, bodyErr := cmd.body()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.URL.Path = path
	r.SetPathValue("run", cmp.Or(cmd.RunID, run))
	r.SetPathValue("call", cmd.CallID)
	if cmd.IdempotencyKey != "" {
		r.Header.Set("Idempotency-Key", cmd.IdempotencyKey)
	}
	return r, bodyErr
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
