package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// A toolServer is an MCP server with one tool, give, which answers with so many
// bytes of text.
type toolServer struct {
	*httptest.Server

	mu    sync.Mutex
	calls []time.Time // when they came
}

func serveTools() *toolServer {
	t := &toolServer{}
	t.Server = httptest.NewServer(t)
	return t
}

// calledAt are the times at which calls came.
func (t *toolServer) calledAt() []time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls
}

func (t *toolServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var q struct {
		ID     json.RawMessage
		Method string
		Params struct {
			ProtocolVersion string
			Arguments       struct{ Bytes int }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if q.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := `{}`
	switch q.Method {
	case "initialize":
		result = fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"figures","version":"1"}}`, q.Params.ProtocolVersion)
	case "tools/list":
		result = `{"tools":[{"name":"give","description":"Gives text.","inputSchema":{"type":"object","properties":{"bytes":{"type":"integer"}}},"annotations":{"readOnlyHint":true}}]}`
	case "tools/call":
		t.mu.Lock()
		t.calls = append(t.calls, time.Now())
		t.mu.Unlock()
		result = fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, prose(q.Params.Arguments.Bytes))
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, result)
}

// prose is so many bytes of words, none like the one before.
func prose(n int) string {
	var b strings.Builder
	for i := uint32(1); b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x ", i*2654435761>>12)
	}
	return b.String()[:n]
}
