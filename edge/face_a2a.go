package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/stream"
)

// An agent speaks A2A 1.0 at /a2a/NAME, and the default one at /a2a; each has its
// card below that, where clients look for it.
func (s *Server) a2aRoutes() []route {
	return []route{
		{"GET /.well-known/agent-card.json", s.a2aCard, false},
		{"GET /a2a/.well-known/agent-card.json", s.a2aCard, false},
		{"GET /a2a/{agent}/.well-known/agent-card.json", s.a2aCard, false},
		{"POST /a2a", s.a2a, false},
		{"POST /a2a/{agent}", s.a2a, false},
	}
}

// a2aVersion is the version of the protocol that is spoken.
const a2aVersion = "1.0"

// a2aMethods are those that answer with one object.
var a2aMethods = map[string]func(*Server, *http.Request, *call, *rpcCall) (any, error){
	"SendMessage": (*Server).a2aSend,
	"GetTask":     (*Server).a2aGet,
	"ListTasks":   (*Server).a2aList,
	"CancelTask":  (*Server).a2aCancel,
}

// a2aStreams are those that answer with a task and what follows.
var a2aStreams = map[string]func(*Server, *http.Request, *call, *rpcCall) (*a2aTask, error){
	"SendStreamingMessage": (*Server).a2aSubmit,
	"SubscribeToTask":      (*Server).a2aSubscribe,
}

// a2aRefused are methods of the protocol that are not offered, and why.
var a2aRefused = map[string]*a2aError{
	"GetExtendedAgentCard":             a2aUnsupported("there is no extended card: the public one says everything"),
	"CreateTaskPushNotificationConfig": a2aNoPush,
	"GetTaskPushNotificationConfig":    a2aNoPush,
	"ListTaskPushNotificationConfigs":  a2aNoPush,
	"DeleteTaskPushNotificationConfig": a2aNoPush,
}

// a2a takes one call. What goes wrong with it is an error of JSON-RPC; what has
// nothing to do with it, such as a missing key or an edge that is going away, is
// one of HTTP.
func (s *Server) a2a(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBytes(w, r, s.maxHistory())
	if err != nil {
		return err
	}
	body = bytes.TrimSpace(body)
	if err := checkJSON(body); err != nil {
		return writeA2A(w, rpcNull, nil, &a2aError{code: rpcParse, text: err.Error()})
	}
	q, refused := readRPC(body)
	if refused != nil {
		return writeA2A(w, refused.ID, nil, &a2aError{code: rpcInvalid, text: refused.Error.Message + "; one call at a time"})
	}
	c.note("method", q.Method)
	err = checkA2A(r, q)
	if open := a2aStreams[q.Method]; open != nil && err == nil {
		return s.a2aStream(w, r, c, q, open)
	}
	var result any
	if err == nil {
		result, err = a2aMethods[q.Method](s, r, c, q)
	}
	return s.a2aAnswer(w, c, q, result, err)
}

// checkA2A refuses what is not of this version, or not offered. A client that does
// not say its version is taken at its method's name: no older version has these.
func checkA2A(r *http.Request, q *rpcCall) error {
	said := r.Header.Get("A2A-Version")
	major, rest, _ := strings.Cut(said, ".")
	minor, _, _ := strings.Cut(rest, ".")
	known := a2aMethods[q.Method] != nil || a2aStreams[q.Method] != nil
	switch {
	case said != "" && (major != "1" || minor != "0" && minor != ""), !known && strings.Contains(q.Method, "/"):
		return &a2aError{code: a2aBadVersion, reason: "VERSION_NOT_SUPPORTED",
			text: "this agent speaks A2A " + a2aVersion + " alone, as its card says: send A2A-Version: " + a2aVersion + " and methods such as SendMessage"}
	case a2aRefused[q.Method] != nil:
		return a2aRefused[q.Method]
	case !known:
		return &a2aError{code: rpcMethod, text: "there is no method " + q.Method +
			"; use SendMessage, SendStreamingMessage, GetTask, ListTasks, CancelTask or SubscribeToTask"}
	}
	return nil
}

// a2aAnswer answers with a result or an error.
func (s *Server) a2aAnswer(w http.ResponseWriter, c *call, q *rpcCall, result any, err error) error {
	var refused *a2aError
	if err != nil && !errors.As(err, &refused) {
		if refused = a2aErrorOf(s.rpcProblem(c, err)); refused == nil {
			return err
		}
	}
	if q.ID == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return writeA2A(w, q.ID, result, refused)
}

func writeA2A(w http.ResponseWriter, id json.RawMessage, result any, refused *a2aError) error {
	o := dialect.NewObject(256).Text("jsonrpc", "2.0").Raw("id", id)
	if refused != nil {
		o = o.Value("error", refused)
	} else {
		o = o.Value("result", result)
	}
	writeJSON(w, http.StatusOK, json.RawMessage(o.Close()))
	return nil
}

// a2aStream tells a task as it is, and then what follows, to the task's end or to
// where it waits for somebody.
func (s *Server) a2aStream(w http.ResponseWriter, r *http.Request, c *call, q *rpcCall, open func(*Server, *http.Request, *call, *rpcCall) (*a2aTask, error)) error {
	if q.ID == nil {
		return s.a2aAnswer(w, c, q, nil, bad("id", "a stream answers a call: send an id"))
	}
	t, err := open(s, r, c, q)
	if err == nil {
		err = s.a2aFollow(w, r, c, q, t)
	}
	if err == nil || c.started {
		return err
	}
	return s.a2aAnswer(w, c, q, nil, err)
}

func (s *Server) a2aFollow(w http.ResponseWriter, r *http.Request, c *call, q *rpcCall, t *a2aTask) error {
	req := stream.Request{Transport: a2aEvents{string(q.ID)}, Dialect: t.dialect(s.base(r)), Snapshot: true, Ends: s.idles(r.Context(), t.place, t.answered)}
	return s.startStream(w, r, c, &t.namedRun, req)
}

// a2aEvents are server-sent events, each an answer to the one call.
type a2aEvents struct{ id string }

func (a2aEvents) ContentType() string { return stream.SSE{}.ContentType() }

func (t a2aEvents) Append(b []byte, id string, m dialect.Message) []byte {
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(append(append(b, `data: {"jsonrpc":"2.0","id":`...), t.id...), `,"result":`...)
	return append(append(b, m.Data...), "}\n\n"...)
}

func (a2aEvents) Hello(b []byte) []byte { return stream.SSE{}.Hello(b) }
func (a2aEvents) Ping(b []byte) []byte  { return stream.SSE{}.Ping(b) }

// base is where clients reach this edge, as they or their proxy say.
func (s *Server) base(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}
