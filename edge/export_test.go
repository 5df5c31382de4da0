package edge

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/stream"
)

// Patterns lists the routes that are built.
func (s *Server) Patterns() []string {
	var all []string
	for _, r := range s.table() {
		all = append(all, r.pattern)
	}
	return all
}

// Handler serves all routes of an edge that runs.
func (s *Server) Handler() http.Handler { return s.handler }

// ReadDataURL is for the fuzz test.
var ReadDataURL = readDataURL

// Drain ends all streams, as Run does at its end.
func (s *Server) Drain() { s.endStream(errDraining) }

// ClientOf is whose request one is.
func (s *Server) ClientOf(r *http.Request) string { return s.clientOf(r).String() }

// LimitKey is what an address is counted by.
func LimitKey(a string) string { return limitKey(netip.MustParseAddr(a)) }

// ReadLangGraphInput reads a request for a run, and returns the roles of its
// messages.
func ReadLangGraphInput(body []byte) (roles []string, err error) {
	in, err := readLangGraph(body)
	if err != nil || in.empty() {
		return nil, err
	}
	list, err := in.messages()
	for _, m := range list {
		roles = append(roles, m.role())
	}
	return roles, err
}

// Parked is the number of streams that are parked.
func (s *Server) Parked() int { return s.hub.Parked() }

// DialectNames are those that ?dialect= may name.
func DialectNames() (names []string) {
	for _, d := range dialects {
		names = append(names, d.Name())
	}
	return names
}

// ReadMCPKey reads an event's id: the id of its call, as JSON, and the position.
func ReadMCPKey(id string) (call, at string, err error) {
	k, p, err := readMCPKey(id)
	return string(k.ID), p.String(), err
}

// Dialects are those that ?dialect= may name.
func Dialects() []dialect.Dialect { return slices.Clone(dialects) }

// Held is what an edge keeps for its clients.
type Held struct {
	stream.Holdings
	Streams, Bodies int64
}

// Holds is what the edge keeps now.
func (s *Server) Holds() Held { return Held{s.hub.Holds(), s.streams.Load(), s.bodies.Used()} }
