package edge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/edge"
)

// An apiDoc is the served document, made strict: an answer may have no member
// that it does not name.
type apiDoc struct {
	t     testing.TB
	paths map[string]map[string]operation
	defs  map[string]any
	seen  map[string]bool // method, path and status whose answer was checked
}

type operation struct {
	Responses map[string]struct {
		Content map[string]struct {
			Schema any `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
	RequestBody struct {
		Content map[string]struct {
			Schema any `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
}

func readDoc(t testing.TB, raw []byte) *apiDoc {
	t.Helper()
	raw = bytes.ReplaceAll(raw, []byte("#/components/schemas/"), []byte("#/$defs/"))
	doc := as[struct {
		OpenAPI    string                          `json:"openapi"`
		Paths      map[string]map[string]operation `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}](t, raw)
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("openapi %q", doc.OpenAPI)
	}
	for _, s := range doc.Components.Schemas {
		strict(s)
	}
	return &apiDoc{t, doc.Paths, doc.Components.Schemas, map[string]bool{}}
}

// strict closes every object that names its members.
func strict(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if _, ok := s["properties"]; ok && s["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
		for _, inner := range s {
			strict(inner)
		}
	case []any:
		for _, inner := range s {
			strict(inner)
		}
	}
}

func (d *apiDoc) validate(schema any, data []byte) error {
	root := map[string]any{"$defs": d.defs, "allOf": []any{schema}}
	raw, _ := json.Marshal(root)
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	return resolved.Validate(value)
}

// check holds an answer to the document.
func (d *apiDoc) check(method, path string, resp *http.Response) []byte {
	d.t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	op, ok := d.paths[path][strings.ToLower(method)]
	if !ok {
		d.t.Errorf("%s %s is not described", method, path)
		return body
	}
	answer, ok := op.Responses[strconv.Itoa(resp.StatusCode)]
	if !ok {
		answer = op.Responses["default"]
	}
	if resp.StatusCode == http.StatusNoContent && ok {
		d.seen[fmt.Sprintf("%s %s %d", method, path, resp.StatusCode)] = true
		return body
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	content, ok := answer.Content[kind]
	if !ok {
		d.t.Errorf("%s %s answers %d with %s, which is not described", method, path, resp.StatusCode, kind)
		return body
	}
	if !strings.Contains(kind, "ndjson") && strings.Contains(kind, "json") {
		if err := d.validate(content.Schema, body); err != nil {
			d.t.Errorf("%s %s answers %d with what is not described: %v\n%s", method, path, resp.StatusCode, err, body)
		}
	}
	d.seen[fmt.Sprintf("%s %s %d", method, path, resp.StatusCode)] = true
	return body
}

func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	doc := readDoc(t, e.get(200, "/openapi.json"))
	for _, pattern := range e.srv.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		if _, ok := doc.paths[path][strings.ToLower(method)]; !ok && path != "/openapi.json" {
			t.Errorf("%s is not described", pattern)
		}
	}
	w := s.scribe("default", goldenSession)
	events := w.golden()
	if err := s.catalog.Apply(t.Context(), "default", events); err != nil {
		t.Fatal(err)
	}
	s.store("art_1", "note.md", "# Note\n")
	s.settling()
	s.work()
	runID, traceID := "run_01k9example", "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, c := range []struct {
		method, path, url, body string
		status                  int
	}{
		{"GET", "/healthz", "/healthz", "", 200},
		{"GET", "/readyz", "/readyz", "", 200},
		{"POST", "/v1/runs", "/v1/runs", `{"agent":"demo","input":"hold","trace_id":"t","session_id":"s","queue":"enqueue","on_disconnect":"continue","config":{"emit":{"tools":["a"]},"limits":{"steps":3}}}`, 202},
		{"POST", "/v1/runs", "/v1/runs?wait=10s", `{"input":[{"type":"text","text":"x"}]}`, 200},
		{"POST", "/v1/runs", "/v1/runs", `{"input":7}`, 400},
		{"GET", "/v1/runs", "/v1/runs?limit=1", "", 200},
		{"GET", "/v1/runs", "/v1/runs?limit=0", "", 400},
		{"GET", "/v1/runs/{run}", "/v1/runs/" + runID, "", 200},
		{"GET", "/v1/runs/{run}", "/v1/runs/none", "", 404},
		{"GET", "/v1/runs/{run}/events", "/v1/runs/" + runID + "/events", "", 200},
		{"GET", "/v1/runs/{run}/events", "/v1/runs/" + runID + "/events?after=99", "", 409},
		{"POST", "/v1/runs/{run}/cancel", "/v1/runs/" + runID + "/cancel", `{"reason":"x"}`, 200},
		{"POST", "/v1/runs/{run}/stop", "/v1/runs/" + runID + "/stop", `{}`, 200},
		{"POST", "/v1/runs/{run}/resume", "/v1/runs/run_f/resume", `{}`, 202},
		{"POST", "/v1/runs/{run}/steer", "/v1/runs/run_w/steer", `{"input":"x"}`, 202},
		{"POST", "/v1/runs/{run}/approvals/{call}", "/v1/runs/run_w/approvals/asked", `{"decision":"approve"}`, 200},
		{"POST", "/v1/runs/{run}/tools/{call}", "/v1/runs/run_w/tools/given", `{"content":"a"}`, 200},
		{"GET", "/v1/dlq", "/v1/dlq", "", 200},
		{"GET", "/v1/dlq/{run}", "/v1/dlq/run_f", "", 200},
		{"POST", "/v1/dlq/{run}/redrive", "/v1/dlq/run_f/redrive", "", 202},
		{"DELETE", "/v1/dlq/{run}", "/v1/dlq/run_w", "", 204},
		{"GET", "/v1/sessions/{session}", "/v1/sessions/" + goldenSession, "", 200},
		{"GET", "/v1/sessions/{session}/events", "/v1/sessions/" + goldenSession + "/events?follow=0", "", 200},
		{"GET", "/v1/sessions/{session}/snapshot", "/v1/sessions/" + goldenSession + "/snapshot", "", 200},
		{"GET", "/v1/sessions/{session}/messages", "/v1/sessions/" + goldenSession + "/messages", "", 200},
		{"GET", "/v1/sessions/{session}/messages", "/v1/sessions/" + goldenSession + "/messages?format=openai", "", 200},
		{"GET", "/v1/sessions/{session}/messages", "/v1/sessions/" + goldenSession + "/messages?format=anthropic", "", 200},
		{"GET", "/v1/sessions/{session}/messages", "/v1/sessions/" + goldenSession + "/messages?format=cobol", "", 400},
		{"GET", "/v1/traces/{trace}", "/v1/traces/" + traceID, "", 200},
		{"GET", "/v1/traces/{trace}/events", "/v1/traces/" + traceID + "/events", "", 200},
		{"GET", "/v1/stream", "/v1/stream?follow=0&session=" + goldenSession, "", 200},
		{"POST", "/v1/tokens", "/v1/tokens", `{"session_id":"s"}`, 201},
		{"GET", "/v1/agents", "/v1/agents", "", 200},
		{"POST", "/v1/artifacts", "/v1/artifacts?name=a.txt", "hello", 201},
		{"GET", "/v1/artifacts/{artifact}", "/v1/artifacts/art_1", "", 200},
		{"GET", "/artifacts/{artifact}", "/artifacts/none", "", 404},
		{"POST", "/rpc", "/rpc", `{"jsonrpc":"2.0","id":1,"method":"session.get","params":{"session_id":"none"}}`, 200},
		{"POST", "/rpc", "/rpc", `[{"jsonrpc":"2.0","id":"a","method":"agent.list"}]`, 200},
		{"POST", "/chat", "/chat", `{"user_input":"hi"}`, 200},
		{"POST", "/chat", "/chat?format=anthropic", `{"messages":[{"role":"user","content":"hi"}]}`, 200},
	} {
		resp := e.do(c.method, c.url, c.body)
		if body := doc.check(c.method, c.path, resp); resp.StatusCode != c.status {
			t.Errorf("%s %s: status %d, want %d\n%s", c.method, c.url, resp.StatusCode, c.status, body)
		}
		if c.body != "" && c.path != "/v1/artifacts" {
			want := c.status < 400
			err := doc.validate(doc.paths[c.path]["post"].RequestBody.Content["application/json"].Schema, []byte(c.body))
			if (err == nil) != want {
				t.Errorf("%s %s: the document says %v of %s", c.method, c.url, err, c.body)
			}
		}
	}
	for path, methods := range doc.paths {
		for method := range methods {
			found := path == "/artifacts/{artifact}" // bytes
			for seen := range doc.seen {
				found = found || strings.HasPrefix(seen, strings.ToUpper(method)+" "+path+" 2")
			}
			if !found {
				t.Errorf("%s %s was not tried", method, path)
			}
		}
	}
	// The check would notice an answer that is not as described.
	if doc.validate(doc.defs["Run"], []byte(`{"run_id":"r"}`)) == nil || doc.validate(doc.defs["Health"], []byte(`{"status":"ok","more":1}`)) == nil {
		t.Error("the check lets everything pass")
	}
}

// store puts an artifact of the default tenant into the store.
func (s *site) store(id, name, content string) {
	s.t.Helper()
	w, err := s.artifacts.Create(s.t.Context(), artifacts.Key{Tenant: "default", ID: id}, artifacts.Meta{Name: name, MediaType: "text/markdown"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Abort()
	if _, err := io.WriteString(w, content); err != nil {
		s.t.Fatal(err)
	}
	if _, err := w.Commit(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}
