package edge

// Patterns lists the routes that are built.
func (s *Server) Patterns() []string {
	var all []string
	for _, r := range s.table() {
		all = append(all, r.pattern)
	}
	return all
}

// ReadDataURL is for the fuzz test.
var ReadDataURL = readDataURL
