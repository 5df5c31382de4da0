package edge

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// An rpcRoute is a method that does what a route of the native API does: some
// params are in its path, the others are its body.
type rpcRoute struct {
	handler func(*Server) handler
	path    map[string]string          // name in params: name in the path
	fixed   map[string]json.RawMessage // of the body
	also    map[string]json.RawMessage // of the body, unless the caller says it
}

var (
	ofRun  = map[string]string{"run_id": "run"}
	ofCall = map[string]string{"run_id": "run", "call_id": "call"}
)

var rpcRoutes = map[string]rpcRoute{
	"agent.list":        {handler: func(s *Server) handler { return s.listAgents }},
	"agent.cancel":      {handler: func(s *Server) handler { return s.cancelRun }, path: ofRun},
	"agent.stop":        {handler: func(s *Server) handler { return s.stopRun }, path: ofRun},
	"agent.steer":       {handler: func(s *Server) handler { return s.steer }, path: ofRun},
	"agent.approve":     {handler: func(s *Server) handler { return s.decide }, path: ofCall, also: map[string]json.RawMessage{"decision": event.Encode(event.Approved)}},
	"agent.deny":        {handler: func(s *Server) handler { return s.decide }, path: ofCall, fixed: map[string]json.RawMessage{"decision": event.Encode(event.Denied)}},
	"agent.tool_result": {handler: func(s *Server) handler { return s.toolResult }, path: ofCall},
	"agent.get":         {handler: func(s *Server) handler { return s.getRun }, path: ofRun},
	"session.get":       {handler: func(s *Server) handler { return s.getSnapshot }, path: map[string]string{"session_id": "session"}},
}

var rpcMethods = strings.Join(slices.Sorted(func(yield func(string) bool) {
	for _, name := range []string{"agent.invoke", "agent.attach", "agent.resume"} {
		if !yield(name) {
			return
		}
	}
	maps.Keys(rpcRoutes)(yield)
}), ", ")

// do calls the route's handler and returns what it answers.
func (t rpcRoute) do(s *Server, r *http.Request, c *call, q *rpcCall) (any, error) {
	params := map[string]json.RawMessage{}
	if err := q.into(&params); err != nil {
		return nil, err
	}
	inner := r.Clone(r.Context())
	inner.URL.RawQuery = ""
	for name, in := range t.path {
		var value string
		if err := json.Unmarshal(params[name], &value); err != nil || value == "" {
			return nil, bad(name, "%s is missing: a string", name)
		}
		inner.SetPathValue(in, value)
		delete(params, name)
	}
	for name, value := range t.also {
		if params[name] == nil {
			params[name] = value
		}
	}
	maps.Copy(params, t.fixed)
	inner.Body = io.NopCloser(bytes.NewReader(event.Encode(params)))
	w := &captured{h: http.Header{}}
	if err := t.handler(s)(w, inner, c); err != nil {
		return nil, err
	}
	return json.RawMessage(bytes.TrimSpace(w.body.Bytes())), nil
}

// captured is an answer that goes into another one.
type captured struct {
	h    http.Header
	body bytes.Buffer
}

func (w *captured) Header() http.Header         { return w.h }
func (w *captured) WriteHeader(int)             {}
func (w *captured) Write(b []byte) (int, error) { return w.body.Write(b) }
