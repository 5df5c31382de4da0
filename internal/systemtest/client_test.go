package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// patience bounds everything that a test waits for: it is not how long things should take.
const patience = 60 * time.Second

// An edge is where requests go, and the key that they carry.
type edge struct {
	url string
	key string
}

func (e edge) with(key string) edge { return edge{e.url, key} }

// An answer is a response that was read to its end.
type answer struct {
	*http.Response
	body []byte
}

// try sends a request; headers are pairs. Trouble on the way is returned, statuses are not judged.
func (e edge) try(ctx context.Context, method, path, body string, headers ...string) (*answer, error) {
	resp, err := e.open(ctx, method, path, body, headers...)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return &answer{resp, data}, err
}

func (e edge) open(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.url+path, in)
	if err != nil {
		return nil, err
	}
	if e.key != "" {
		req.Header.Set("Authorization", "Bearer "+e.key)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return client.Do(req)
}

// client keeps no connection for later: a restarted edge has the same address.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

// do sends a request that has to be answered with a status.
func (e edge) do(t testing.TB, want int, method, path, body string, headers ...string) *answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := e.try(ctx, method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if a.StatusCode != want {
		t.Fatalf("%s %s: %s, want %d: %.500s", method, path, a.Status, want, a.body)
	}
	return a
}

func (e edge) get(t testing.TB, path string, headers ...string) *answer {
	t.Helper()
	return e.do(t, http.StatusOK, http.MethodGet, path, "", headers...)
}

// into decodes an answer.
func into[T any](t testing.TB, a *answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%s of %s is no JSON of this kind: %v: %.500s", a.Header.Get("Content-Type"), a.Request.URL.Path, err, a.body)
	}
	return v
}

// A run as GET /v1/runs/{id} and POST /v1/runs have it, with what tests look at.
type run struct {
	RunID     string             `json:"run_id"`
	SessionID string             `json:"session_id"`
	TraceID   string             `json:"trace_id"`
	Status    event.Status       `json:"status"`
	Seq       event.Seq          `json:"seq"`
	Text      string             `json:"text"`
	Reason    string             `json:"reason"`
	Error     *event.RunError    `json:"error"`
	ToolCalls []*event.ToolCall  `json:"tool_calls"`
	Artifacts []*event.Artifact  `json:"artifacts"`
	Finish    event.FinishReason `json:"finish_reason"`
}

// request is the body of POST /v1/runs.
type request struct {
	Agent     string `json:"agent,omitempty"`
	SessionID string `json:"session_id,omitempty"`
	TraceID   string `json:"trace_id,omitempty"`
	Input     string `json:"input"`
}

func (r request) body() string {
	if r.Agent == "" {
		r.Agent = "probe"
	}
	return string(event.Encode(r))
}

// submit starts a run and returns once it is accepted.
func (e edge) submit(t testing.TB, r request, headers ...string) run {
	t.Helper()
	return into[run](t, e.do(t, http.StatusAccepted, http.MethodPost, "/v1/runs", r.body(), headers...))
}

// finish starts a run and returns its transcript.
func (e edge) finish(t testing.TB, r request) run {
	t.Helper()
	return into[run](t, e.do(t, http.StatusOK, http.MethodPost, "/v1/runs?wait=60s", r.body()))
}

// state is what the edge knows of a run.
func (e edge) state(t testing.TB, runID string) run {
	t.Helper()
	return into[run](t, e.get(t, "/v1/runs/"+runID))
}

// ended waits for a run's end and returns its state.
func (e edge) ended(t testing.TB, runID string) run {
	t.Helper()
	s := e.listen(t, "/v1/runs/"+runID+"/events", sse)
	defer s.close()
	s.rest()
	return e.state(t, runID)
}

// cancel asks for the end of a run and waits for it.
func (e edge) cancel(t testing.TB, runID, reason string) run {
	t.Helper()
	body := string(event.Encode(map[string]any{"reason": reason, "wait": true}))
	return into[run](t, e.do(t, http.StatusOK, http.MethodPost, "/v1/runs/"+runID+"/cancel", body))
}

// A problem is an answer that refuses.
type problem struct {
	Status int        `json:"status"`
	Code   event.Code `json:"code"`
	Detail string     `json:"detail"`
	Head   *event.Seq `json:"head"`
	Known  []string   `json:"known"`
}

// refused sends a request that has to be refused, as a problem with a code.
func (e edge) refused(t testing.TB, status int, code event.Code, method, path, body string, headers ...string) problem {
	t.Helper()
	a := e.do(t, status, method, path, body, headers...)
	p := into[problem](t, a)
	if kind := a.Header.Get("Content-Type"); kind != "application/problem+json" {
		t.Errorf("%s %s: Content-Type %q", method, path, kind)
	}
	if p.Code != code || p.Status != status || p.Detail == "" {
		t.Errorf("%s %s: problem %+v, want code %s", method, path, p, code)
	}
	return p
}

// eventually waits until ok returns true. It is for what nothing announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// lines are those of a text, without the last line end.
func lines(data []byte) [][]byte {
	data = bytes.TrimSuffix(data, []byte("\n"))
	if len(data) == 0 {
		return nil
	}
	return bytes.Split(data, []byte("\n"))
}
