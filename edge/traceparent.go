package edge

import (
	"net/http"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// trace takes the trace id from the body, or from a valid traceparent, or makes
// a new one.
func trace(r *http.Request, given string) (traceparent, id string) {
	header := r.Header.Get("Traceparent")
	fromHeader := traceOf(header)
	if fromHeader == "" {
		header = ""
	}
	switch {
	case given != "":
		return header, given
	case fromHeader != "":
		return header, fromHeader
	}
	return "", event.NewTraceID()
}

// traceOf returns the trace id of a W3C traceparent, or "".
func traceOf(header string) string {
	part := strings.Split(header, "-")
	if len(part) < 4 || len(part[0]) != 2 || part[0] == "ff" || len(part[1]) != 32 || len(part[2]) != 16 || len(part[3]) != 2 ||
		part[0] == "00" && len(part) != 4 {
		return ""
	}
	for _, p := range part[:4] {
		if strings.ContainsFunc(p, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) }) {
			return ""
		}
	}
	if strings.Trim(part[1], "0") == "" || strings.Trim(part[2], "0") == "" {
		return ""
	}
	return part[1]
}
