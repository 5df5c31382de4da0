package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/runlog-dev/runlog/event"
)

// faces are the routes of other people's protocols. They speak as the clients of
// these protocols expect, so openapi.json leaves them to docs/protocols.md.
func (s *Server) faces() []route {
	return slices.Concat(
		s.a2aRoutes(),
		s.aguiRoutes(),
		s.copilotRoutes(),
		s.anthropicRoutes(),
		s.aisdkRoutes(),
		s.openaiRoutes(),
		s.langgraphRoutes(),
		s.mcpRoutes(),
	)
}

// maxHistory bounds the body of a client that sends its whole conversation with
// every request. Only what the session does not hold goes any further.
func (s *Server) maxHistory() int64 { return 32 * s.opts.MaxBody }

// decodeOpen reads one JSON value and leaves out members that v does not have.
func decodeOpen(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return bad("", "the body is empty; send JSON")
		}
		return jsonProblem(body, dec.InputOffset(), err)
	}
	return checkMembers(body)
}

// readOptional is decodeOpen of a body that may be missing.
func (s *Server) readOptional(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := readBody(w, r, s.opts.MaxBody)
	if err != nil || len(body) == 0 {
		return err
	}
	return decodeOpen(body, v)
}

// clientTools offers a client's tools to the agent.
func clientTools(tools []event.ClientTool) *event.RunConfig {
	if len(tools) == 0 {
		return nil
	}
	return &event.RunConfig{ClientTools: tools}
}

func ignoreMissing(err error) error {
	if toProblem(err).Status == http.StatusNotFound {
		return nil
	}
	return err
}
