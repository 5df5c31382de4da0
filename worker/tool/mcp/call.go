package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A remote is one tool of a server. It outlives the connection.
type remote struct {
	server *Server
	name   string // what the server calls it
	spec   tool.Spec
}

func (t *remote) Spec() tool.Spec { return t.spec }

// Namespace is what tells the tool from one of another server.
func (t *remote) Namespace() string { return t.server.opt.Name }

// Call runs the tool. Beside ctx's, its errors are tool.ErrUnavailable and,
// after Spec().Timeout, context.DeadlineExceeded, each with
// tool.ErrEffectUnknown if the server may have got the request. What the server
// refuses, such as bad arguments, is a failed Result.
func (t *remote) Call(caller context.Context, call tool.Call) (tool.Result, error) {
	if !event.IsObject(call.Args) {
		return tool.Failed("The arguments must be one JSON object, as the schema of the tool describes it."), nil
	}
	ctx, cancel := context.WithTimeout(caller, t.spec.Timeout)
	defer cancel()
	res, sent, err := t.server.call(ctx, t.name, call)
	switch {
	case err == nil:
		return t.result(ctx, call, res)
	case caller.Err() != nil:
		return tool.Result{}, caller.Err()
	case ctx.Err() != nil && sent:
		return tool.Result{}, fmt.Errorf("tool %s gave no answer within %s: %w (%w)",
			t.spec.Name, t.spec.Timeout, context.DeadlineExceeded, tool.ErrEffectUnknown)
	case ctx.Err() != nil:
		return tool.Result{}, t.unavailable(false, fmt.Errorf("no connection within %s", t.spec.Timeout))
	case isAnswer(err):
		return tool.Failed(answerText(err)), nil
	}
	return tool.Result{}, t.unavailable(sent, err)
}

func (t *remote) unavailable(sent bool, err error) error {
	err = fmt.Errorf("mcp server %q: %w: %w", t.server.opt.Name, tool.ErrUnavailable, err)
	if sent {
		err = fmt.Errorf("%w (%w)", err, tool.ErrEffectUnknown)
	}
	return err
}

// call makes one call, on a second connection if the first turns out to be dead
// before anything was sent. sent says whether the server may have acted.
func (s *Server) call(ctx context.Context, name string, call tool.Call) (res *sdk.CallToolResult, sent bool, err error) {
	for try := 1; ; try++ {
		l, err := s.acquire(ctx)
		if err != nil {
			return nil, false, err
		}
		res, sent, again, err := l.call(ctx, name, call)
		if err == nil || isAnswer(err) {
			s.answered()
		}
		if again {
			s.discard(l, err)
		}
		s.release(l)
		if !again || try == 2 {
			return res, sent, err
		}
	}
}

// An outcome is how a call on one link ended.
type outcome struct {
	res *sdk.CallToolResult
	err error
}

// call makes one call on this link. again says that the link is broken and that
// another one may be tried without the tool running twice.
func (l *link) call(ctx context.Context, name string, call tool.Call) (_ *sdk.CallToolResult, sent, again bool, _ error) {
	params, expire := l.server.params(name, call)
	defer expire()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, trip := withDelivery(ctx)
	ended := make(chan outcome, 1)
	go func() {
		res, err := l.session.CallTool(ctx, params)
		ended <- outcome{res, err}
	}()
	var o outcome
	select {
	case o = <-ended:
	case <-ctx.Done():
		go l.endIfStuck(ended)
		return nil, l.mayHaveSent(trip, nil), false, ctx.Err()
	case <-l.server.ctx.Done():
		return nil, l.mayHaveSent(trip, nil), false, errClosed
	}
	if o.err == nil {
		return o.res, true, false, nil
	}
	sent = l.mayHaveSent(trip, o.err)
	return nil, sent, !sent && l.broken(trip, o.err), l.reason(o.err)
}

// mayHaveSent reports whether the server may have got the request.
func (l *link) mayHaveSent(trip *delivery, err error) bool {
	if l.proc == nil {
		return trip.sent.Load()
	}
	return !errors.Is(err, sdk.ErrConnectionClosed) && !errors.Is(err, errUnsent)
}

// broken reports whether the session is of no more use after a call that was
// not sent.
func (l *link) broken(trip *delivery, err error) bool {
	return errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, errUnsent) || trip.refused.Load() == http.StatusNotFound
}

// reason makes of the SDK's error what a person can use.
func (l *link) reason(err error) error {
	if isAnswer(err) {
		return err
	}
	if l.proc != nil {
		err = l.proc.Cause(err)
	}
	return fmt.Errorf("no answer: %w", plain(err))
}

// endIfStuck ends the connection if a cancelled call cannot end, because the
// server does not read what is sent to it: every later call would hang too. The
// SDK returns at once otherwise.
func (l *link) endIfStuck(ended <-chan outcome) {
	select {
	case <-ended:
	case <-l.done:
	case <-time.After(l.server.stuckAfter):
		l.server.discard(l, errors.New("it reads no more"))
		l.close()
	}
}

// params are those of tools/call. The arguments stay the text that they are.
func (s *Server) params(name string, call tool.Call) (params *sdk.CallToolParams, expire func()) {
	params = &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(call.Args), Meta: sdk.Meta{
		"runlog/idempotency_key": call.IdempotencyKey,
		"runlog/attempt":         call.Attempt,
		"runlog/run_id":          call.RunID,
		"runlog/call_id":         call.CallID,
	}}
	if call.Progress == nil {
		return params, func() {}
	}
	token := fmt.Sprintf("%s/%d", call.CallID, s.tokens.Add(1))
	params.Meta["progressToken"] = token
	return params, s.reports.expect(token, call.Progress)
}

func answerText(err error) string {
	var answer *jsonrpc.Error
	errors.As(err, &answer)
	return answer.Message
}
