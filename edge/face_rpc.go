package edge

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/runlog-dev/runlog/event"
)

// maxBatch bounds the calls of one batch.
const maxBatch = 100

// An rpcCall is a JSON-RPC 2.0 request. One without an id is a notification,
// which nobody answers.
type rpcCall struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// An rpcAnswer has a result or an error.
type rpcAnswer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

var rpcNull = json.RawMessage("null")

// rpc takes one call or a batch. agent.invoke, agent.attach and agent.resume
// stream: notifications, one a line, and the answer as the last line. In a batch
// or as a notification, and with stream: false, they answer with the run's place.
func (s *Server) rpc(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBytes(w, r, s.opts.MaxBody)
	if err != nil {
		return err
	}
	body = bytes.TrimSpace(body)
	if err := checkJSON(body); err != nil {
		return writeRPC(w, rpcAnswer{ID: rpcNull, Error: &rpcError{Code: rpcParse, Message: err.Error()}})
	}
	if body[0] == '[' {
		return s.rpcBatch(w, r, c, body)
	}
	q, refused := readRPC(body)
	if refused != nil {
		return writeRPC(w, *refused)
	}
	c.note("method", q.Method)
	if q.ID != nil && rpcStreams[q.Method] != nil && !q.still() {
		return s.rpcStream(w, r, c, q)
	}
	a := s.rpcDo(r, c, q)
	if q.ID == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return writeRPC(w, a)
}

func (s *Server) rpcBatch(w http.ResponseWriter, r *http.Request, c *call, body []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil || len(list) == 0 || len(list) > maxBatch {
		return writeRPC(w, rpcAnswer{ID: rpcNull, Error: &rpcError{Code: rpcInvalid, Message: "a batch has 1 to 100 calls"}})
	}
	c.note("method", "batch")
	answers := []rpcAnswer{}
	for _, raw := range list {
		q, refused := readRPC(raw)
		if refused != nil {
			answers = append(answers, *refused)
			continue
		}
		if a := s.rpcDo(r, c, q); q.ID != nil {
			answers = append(answers, a)
		}
	}
	if len(answers) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	for i := range answers {
		answers[i].Version = "2.0"
	}
	writeJSON(w, http.StatusOK, answers)
	return nil
}

// readRPC checks a call; refused is the answer to what is none.
func readRPC(raw []byte) (q *rpcCall, refused *rpcAnswer) {
	q = &rpcCall{}
	err := json.Unmarshal(raw, q)
	id := rpcNull
	if err == nil && q.ID != nil && (bytes.ContainsRune([]byte(`"-0123456789`), rune(q.ID[0]))) {
		id = q.ID
	}
	params := len(q.Params) == 0 || q.Params[0] == '{' || q.Params[0] == '['
	if err == nil {
		err = checkMembers(raw)
	}
	if err != nil || q.Version != "2.0" || q.Method == "" || q.ID != nil && string(id) != string(q.ID) || !params {
		return nil, &rpcAnswer{ID: id, Error: &rpcError{Code: rpcInvalid,
			Message: `not a JSON-RPC 2.0 request: send {"jsonrpc":"2.0","id":…,"method":…,"params":{…}}`}}
	}
	return q, nil
}

// still reports whether the caller wants no stream.
func (q *rpcCall) still() bool {
	var p struct {
		Stream *bool `json:"stream"`
	}
	return json.Unmarshal(q.Params, &p) == nil && p.Stream != nil && !*p.Stream
}

// into reads the params strictly. They are named: there are too many to count.
func (q *rpcCall) into(v any) error {
	if len(q.Params) > 0 && q.Params[0] == '[' {
		return bad("params", "params are named: send an object")
	}
	return decode(q.Params, v)
}

// rpcDo answers a call without a stream.
func (s *Server) rpcDo(r *http.Request, c *call, q *rpcCall) rpcAnswer {
	a := rpcAnswer{ID: q.ID}
	result, err := s.rpcResult(r, c, q)
	if err != nil {
		a.Error = rpcErrorOf(s.rpcProblem(c, err))
		return a
	}
	a.Result = result
	return a
}

func (s *Server) rpcResult(r *http.Request, c *call, q *rpcCall) (any, error) {
	if open := rpcStreams[q.Method]; open != nil {
		f, err := open(s, r, c, q)
		if err != nil {
			return nil, err
		}
		if err := f.start(r.Context()); err != nil {
			return nil, err
		}
		st, _, err := s.state(r.Context(), f.place)
		return st, err
	}
	if call, ok := rpcRoutes[q.Method]; ok {
		return call.do(s, r, c, q)
	}
	return nil, problem(http.StatusNotFound, rpcNoMethod, "there is no method %q; known: %s", q.Method, rpcMethods)
}

// rpcProblem is what is said of an error; what was no fault of the caller's is
// kept for the record.
func (s *Server) rpcProblem(c *call, err error) *Problem {
	p := toProblem(err)
	if p.Status >= 500 {
		c.err = err
	}
	return p
}

func writeRPC(w http.ResponseWriter, a rpcAnswer) error {
	a.Version = "2.0"
	writeJSON(w, http.StatusOK, a)
	return nil
}

// rpcLine is an answer as the last line of a stream.
func rpcLine(a rpcAnswer) []byte {
	a.Version = "2.0"
	return append(event.Encode(a), '\n')
}
