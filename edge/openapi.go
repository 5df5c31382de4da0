package edge

import "net/http"

func (s *Server) openAPI(http.ResponseWriter, *http.Request, *call) error {
	return unsupported("", "not yet")
}
