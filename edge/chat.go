package edge

import "net/http"

func (s *Server) chat(http.ResponseWriter, *http.Request, *call) error {
	return unsupported("", "not yet")
}
