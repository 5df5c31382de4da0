package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/event"
)

// subprotocol is what a WebSocket speaks: each message is a JSON object. The
// server sends {id?, event, data}, as SSE does, and {answer, status, body} to
// commands; the client sends where to begin, if its URL does not say so, and
// commands. See docs/api.md.
const subprotocol = "runlog.v1"

// Close codes besides those of RFC 6455: 4000 and the status that HTTP would
// have answered with, where the same would be refused again.
const (
	closeApp       = 4000
	closeRestart   = websocket.StatusServiceRestart
	closeTryLater  = websocket.StatusTryAgainLater
	openingTimeout = 10 * time.Second // for the first message
	refusalTimeout = 5 * time.Second  // for the rest of one that is refused, and the client's goodbye
	socketPing     = 20 * time.Second
	maxCloseReason = 120 // bytes; a close frame has 125 in all
	commandsAtOnce = 8
	commandsHeld   = 64              // those that wait included
	answerGrace    = 5 * time.Second // for the answers to commands when the stream is over
	drainGoodbye   = time.Second     // for the client's goodbye when the edge stops; else it has 5 s
)

// errClientLeft: the client closed its WebSocket.
var errClientLeft = fmt.Errorf("the client closed the WebSocket: %w", context.Canceled)

// errClientDead: the client answers no ping.
var errClientDead = fmt.Errorf("the client answers no ping: %w", os.ErrDeadlineExceeded)

func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// socketKey marks the request of a handler that answers over a WebSocket.
type socketKey struct{}

// A socket is one WebSocket on its way.
type socket struct {
	srv  *Server
	conn *websocket.Conn
	out  *corked
	call *call
	req  *http.Request

	ctx    context.Context
	cancel context.CancelCauseFunc
	first  chan []byte   // the first message, if one is waited for
	begun  chan struct{} // closed when commands may come
	secret string        // who the client is, by key or token; set before begun
	held   chan struct{} // commands that were read and are not answered
	busy   chan struct{} // those that are under way
	over   chan struct{} // closed when no more commands are taken
	read   chan struct{} // closed when nothing more is read
}

// socket serves a stream's handler over a WebSocket. What goes wrong after the
// handshake is told as {"error": problem} and by the close code, since browsers
// do not show their pages why a handshake fails.
func (s *Server) socket(w http.ResponseWriter, r *http.Request, c *call, h handler) error {
	if origin := r.Header.Get("Origin"); origin != "" && !s.allowed(origin) && s.checkCookie(r) != nil {
		return problem(http.StatusForbidden, event.CodeForbidden, "web pages of %s may not connect here", origin)
	}
	if s.drain.Err() != nil {
		return errDraining
	}
	promised, err := s.promise(socketCost) // a WebSocket that is told so takes more than it would be told
	if err != nil {
		return err
	}
	defer s.ledger.Return(promised)
	s.takenOver.Add(1)
	defer s.takenOver.Done()
	k := &socket{srv: s, call: c, req: r, first: make(chan []byte), begun: make(chan struct{}),
		held: make(chan struct{}, commandsHeld), busy: make(chan struct{}, commandsAtOnce), over: make(chan struct{}), read: make(chan struct{})}
	if !k.accept(w) {
		return nil
	}
	k.ctx, k.cancel = context.WithCancelCause(r.Context())
	go k.listen()
	defer func() { <-k.read }() // who reads starts what takenOver waits for
	defer func() { _ = k.conn.CloseNow() }()
	defer k.cancel(nil)
	defer k.keepAlive()()
	err = k.serve(h)
	c.err = err
	k.out.calm()
	k.answered()
	k.close(err)
	return nil
}

// accept shakes hands, or has answered why not.
func (k *socket) accept(w http.ResponseWriter) bool {
	hj := &hijacker{ResponseWriter: &retold{ResponseWriter: w, as: noHandshake}, timeout: k.srv.hub.WriteTimeout()}
	conn, err := websocket.Accept(hj, k.req, &websocket.AcceptOptions{
		Subprotocols: []string{subprotocol}, InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		k.call.ended = "handshake"
		k.call.err = err
		return false
	}
	k.conn, k.out = conn, hj.conn
	k.conn.SetReadLimit(k.srv.opts.MaxBody)
	k.call.started, k.call.status, k.call.parkable = true, http.StatusSwitchingProtocols, false
	return true
}

// noHandshake is what a request is told that is nearly one for a WebSocket.
func noHandshake(status int) *Problem {
	if status < 400 {
		return nil
	}
	return problem(status, event.CodeBadRequest, "this is no handshake of a WebSocket: it is a GET of HTTP/1.1 with "+
		"Connection: Upgrade, Upgrade: websocket, Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key; a proxy on the way has to pass them on. Without Upgrade a stream comes as SSE")
}

// serve learns who the client is and where to begin, and streams.
func (k *socket) serve(h handler) error {
	r := k.req
	if err := checkQuery(r, r.Pattern); err != nil {
		return err
	}
	q, err := k.identify()
	if err != nil {
		return err
	}
	w := &socketWriter{socket: k}
	if err := k.srv.limitRate(w, k.call); err != nil {
		return err
	}
	close(k.begun)
	r = r.Clone(context.WithValue(k.ctx, socketKey{}, k))
	r.URL.RawQuery = q.Encode()
	return h(w, r, k.call)
}

// identify finds out who the client is, and returns the query of its URL. What the URL
// does not say is said by the client's first message, which is waited for then.
func (k *socket) identify() (url.Values, error) {
	q := k.req.URL.Query()
	secret, byCookie := auth.Presented(k.req)
	err := k.srv.identifyFollower(k.req, k.call, secret, byCookie)
	k.secret = secret
	unknown := secret == "" && errors.Is(err, auth.ErrUnauthorized)
	if err != nil && !unknown {
		return nil, err
	}
	if !unknown && (q.Has("snapshot") || slices.ContainsFunc(cursors, q.Has)) {
		return q, nil
	}
	o, err := k.opening()
	if err != nil {
		return nil, err
	}
	if unknown || o.Token != "" {
		if err := k.srv.identifyFollower(k.req, k.call, o.Token, false); err != nil {
			return nil, err
		}
		k.secret = o.Token
	}
	return q, o.into(q)
}

// An opening is the first message of a client whose URL does not say where to begin.
type opening struct {
	ID       string          `json:"id"`    // is not used
	Token    string          `json:"token"` // a key or a token
	After    json.RawMessage `json:"after"` // "41", or 41
	Snapshot *bool           `json:"snapshot"`
	Follow   *bool           `json:"follow"`
	Dialect  string          `json:"dialect"`
	Catchup  string          `json:"catchup"`
	Include  string          `json:"include"`
}

// opening waits for the first message.
func (k *socket) opening() (o opening, err error) {
	wait := time.NewTimer(openingTimeout)
	defer wait.Stop()
	select {
	case raw := <-k.first:
		err = decode(raw, &o)
	case <-wait.C:
		err = problem(http.StatusRequestTimeout, event.CodeBadRequest, `send where to begin within %s: {"after":"0"}`, openingTimeout)
	case <-k.srv.drain.Done():
		err = errDraining
	case <-k.ctx.Done():
		err = context.Cause(k.ctx)
	}
	return o, err
}

// into makes of a first message what its URL would have said.
func (o opening) into(q url.Values) error {
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	after, err := o.after()
	if err != nil {
		return err
	}
	set("after", after)
	if string(o.After) == "null" {
		q.Del("after")
	}
	set("dialect", o.Dialect)
	set("catchup", o.Catchup)
	set("include", o.Include)
	if o.Snapshot != nil {
		q.Set("snapshot", fmt.Sprint(*o.Snapshot))
	}
	if o.Follow != nil {
		q.Set("follow", fmt.Sprint(*o.Follow))
	}
	return nil
}

// after is the cursor as a URL has it. Of numbers only whole ones are one: 41.0 is 41
// to who wrote it, and would be a place inside of event 41.
func (o opening) after() (cursor string, err error) {
	switch {
	case len(o.After) == 0 || string(o.After) == "null":
		return "", nil
	case o.After[0] == '"':
		err = json.Unmarshal(o.After, &cursor)
		return cursor, err
	case len(bytes.Trim(o.After, "0123456789")) > 0:
		return "", bad("after", `after: %.40s is no cursor; send the last id as it came, as a text`, o.After)
	}
	return string(o.After), nil
}

// answered waits, for a moment, until what the client has asked for is answered: it
// may have asked for the end that it sees. After it no command is taken.
func (k *socket) answered() {
	defer close(k.over)
	grace := time.NewTimer(min(answerGrace, k.srv.opts.DrainPeriod/2))
	defer grace.Stop()
	for range commandsHeld {
		select {
		case k.held <- struct{}{}:
		case <-grace.C:
			return
		case <-k.ctx.Done():
			return
		}
	}
}

// close says how it ended. What broke off is aborted, or closed by a code that no
// client takes for the end.
func (k *socket) close(err error) {
	if k.call.ended == "" {
		k.call.ended = "refused"
	}
	code, reason := websocket.StatusNormalClosure, "over"
	switch {
	case k.ctx.Err() != nil, errors.Is(err, net.ErrClosed): // refuse has said so
		return
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return // nobody listens
	case errors.Is(err, errDraining):
		code, reason = closeRestart, errDraining.Error()
	default:
		p := toProblem(err).whole()
		_ = k.send(struct {
			Error      *Problem `json:"error"`
			RetryAfter int      `json:"retry_after,omitempty"` // seconds, as of HTTP
		}{p, wholeSeconds(p.retryAfter)})
		code, reason = closeCode(p.Status), string(p.Code)
	}
	k.sayGoodbye(code, reason[:min(len(reason), maxCloseReason)])
}

// sayGoodbye closes the WebSocket and waits until the client does, too. One that has gone
// without a word never will, and does not hold up an edge that stops.
func (k *socket) sayGoodbye(code websocket.StatusCode, reason string) {
	defer context.AfterFunc(k.srv.drain, func() { _ = k.out.SetReadDeadline(time.Now().Add(drainGoodbye)) })()
	_ = k.conn.Close(code, reason)
}

// closeCode tells what HTTP would have told with a status.
func closeCode(status int) websocket.StatusCode {
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return closeTryLater
	case http.StatusInternalServerError:
		return websocket.StatusInternalError
	}
	return websocket.StatusCode(closeApp + status)
}
