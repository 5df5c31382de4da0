package edge

import "slices"

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
