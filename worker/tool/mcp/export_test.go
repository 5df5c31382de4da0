package mcp

import "time"

// SetStuckAfter shortens the wait for a cancelled call. Call it before any call.
func (s *Server) SetStuckAfter(d time.Duration) { s.stuckAfter = d }
