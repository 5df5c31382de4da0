package edge

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/a2a"
	"github.com/runlog-dev/runlog/edge/dialect/agents"
	"github.com/runlog-dev/runlog/edge/dialect/agui"
	"github.com/runlog-dev/runlog/edge/dialect/aisdk"
	"github.com/runlog-dev/runlog/edge/dialect/anthropic"
	"github.com/runlog-dev/runlog/edge/dialect/langgraph"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/dialect/openai"
	"github.com/runlog-dev/runlog/edge/dialect/parts"
	"github.com/runlog-dev/runlog/edge/dialect/plain"
	"github.com/runlog-dev/runlog/edge/dialect/rpc"
	"github.com/runlog-dev/runlog/edge/dialect/v1"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// dialects are those that ?dialect= may name.
var dialects = []dialect.Dialect{native.Dialect{}, plain.Dialect{}, agui.Dialect{}, aisdk.Dialect{}, openai.Responses{},
	v1.Dialect{}, parts.Dialect{}, agents.Dialect{}, rpc.Dialect{}, anthropic.Dialect{}, langgraph.Dialect{}, a2a.Dialect{}}

// streamRequest reads what all streams take: position, filters, form.
func (s *Server) streamRequest(r *http.Request, c *call, def dialect.Dialect) (stream.Request, error) {
	var req stream.Request
	q := r.URL.Query()
	var err error
	if req.Transport, err = transport(r, stream.SSE{}); err != nil {
		return req, err
	}
	if req.Dialect, err = namedDialect(dialectName(r), def); err != nil {
		return req, err
	}
	if req.Audience, err = audience(r, c); err != nil {
		return req, err
	}
	if req.Catchup, err = catchup(q.Get("catchup")); err != nil {
		return req, err
	}
	if req.After, err = stream.ParsePosition(cursor(r)); err != nil {
		return req, err
	}
	snapshot, err := boolParam(r, "snapshot", false)
	if err != nil {
		return req, err
	}
	follow, err := boolParam(r, "follow", true)
	// A client that reconnects to the same URL already has its snapshot.
	req.Snapshot, req.NoFollow = snapshot && reconnected(r) == "", !follow
	return req, err
}

// cursors are the parameters that cursor looks for.
var cursors = []string{"after", "last_event_id", "lastEventId"}

// cursor is where a client has got to. What a client says when it reconnects wins
// over the URL that it began with: the header, or the parameter of EventSource's
// polyfills.
func cursor(r *http.Request) string {
	q := r.URL.Query()
	return cmp.Or(reconnected(r), q.Get("after"), q.Get("last_event_id"))
}

// reconnected is what a client that comes back says. A header that is there twice is one
// with both values, and so no cursor, as it would be if a proxy had joined them.
func reconnected(r *http.Request) string {
	return cmp.Or(strings.Join(r.Header.Values("Last-Event-ID"), ", "), r.URL.Query().Get("lastEventId"))
}

// transport chooses by Accept; a client that takes anything gets def.
func transport(r *http.Request, def stream.Transport) (stream.Transport, error) {
	if r.Context().Value(socketKey{}) != nil {
		return stream.WebSocket{}, nil
	}
	accept := strings.Join(r.Header.Values("Accept"), ",")
	for kind := range strings.SplitSeq(accept, ",") {
		kind, _, _ = strings.Cut(kind, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "text/event-stream":
			return stream.SSE{}, nil
		case "application/x-ndjson", "application/jsonl":
			return stream.NDJSON{}, nil
		case "*/*", "text/*", "":
			return def, nil
		}
	}
	return nil, problem(http.StatusNotAcceptable, event.CodeBadRequest, "Accept: %s; a stream is text/event-stream or application/x-ndjson", accept)
}

// dialectName is what a client asks for: by query, by header, or by a parameter
// of Accept (text/event-stream;dialect=v1).
func dialectName(r *http.Request) string {
	if name := r.URL.Query().Get("dialect"); name != "" {
		return name
	}
	if name := r.Header.Get("Runlog-Dialect"); name != "" {
		return name
	}
	for kind := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if _, params, err := mime.ParseMediaType(kind); err == nil && params["dialect"] != "" {
			return params["dialect"]
		}
	}
	return ""
}

func namedDialect(name string, def dialect.Dialect) (dialect.Dialect, error) {
	if name == "" {
		return def, nil
	}
	names := make([]string, len(dialects))
	for i, d := range dialects {
		if names[i] = d.Name(); names[i] == name {
			return d, nil
		}
	}
	p := problem(http.StatusBadRequest, event.CodeUnknownDialect, "there is no dialect %q; known: %s", name, strings.Join(names, ", "))
	p.Param, p.Known = "dialect", names
	return nil, p
}

// audience reads ?include=.
func audience(r *http.Request, c *call) (dialect.Audience, error) {
	switch include := r.URL.Query().Get("include"); {
	case include == "":
		return dialect.Client, nil
	case include != "internal":
		return dialect.Client, bad("include", "include=%s is not known; use include=internal", include)
	case !c.who.May(auth.Audit):
		return dialect.Client, problem(http.StatusForbidden, event.CodeForbidden, "include=internal needs a key with the scope %s", auth.Audit)
	}
	return dialect.Auditor, nil
}

func catchup(name string) (stream.Catchup, error) {
	c := stream.Catchup(name)
	if name != "" && !slices.Contains(stream.Catchups, c) {
		return c, bad("catchup", "catchup=%s is not known; use events, merged or snapshot", name)
	}
	return c, nil
}
