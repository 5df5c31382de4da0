package edge

import (
	_ "embed"
	"net/http"
)

// openAPIDocument describes the JSON routes. A test holds the handlers to it.
//
//go:embed openapi.json
var openAPIDocument []byte

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request, _ *call) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "max-age=300")
	_, _ = w.Write(openAPIDocument)
	return nil
}
