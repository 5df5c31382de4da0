package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A cutter is a proxy in front of two edges: after so many messages of a stream it
// breaks the connection off, and the other edge takes what comes next.
type cutter struct {
	edges []string
	after int  // 0: never
	early bool // who comes back is taken one message further back than it is

	mu       sync.Mutex
	cuts     int
	seen     int // messages
	progress int // of them notifications
	ids      []string
}

func (p *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	edge := p.edges[p.cuts%len(p.edges)]
	last := r.Header.Get("Last-Event-ID")
	if p.early && last != "" {
		for i, id := range p.ids {
			if id == last && i > 0 {
				last = p.ids[i-1]
			}
		}
	}
	p.mu.Unlock()
	out, err := http.NewRequestWithContext(r.Context(), r.Method, edge+r.URL.String(), r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.Header = r.Header.Clone()
	if last != "" {
		out.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		_, _ = io.Copy(w, resp.Body)
		return
	}
	p.pass(w, bufio.NewReader(resp.Body))
}

// pass hands a stream on, block by block.
func (p *cutter) pass(w http.ResponseWriter, from *bufio.Reader) {
	var block []byte
	passed := 0
	for {
		line, err := from.ReadBytes('\n')
		if err == nil && bytes.HasPrefix(line, []byte("retry:")) { // at once: there are many cuts
			line = []byte("retry: 1\n")
		}
		block = append(block, line...)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				panic(http.ErrAbortHandler)
			}
			return
		}
		if len(line) > 1 {
			continue
		}
		if p.counts(block) {
			passed++
		}
		_, _ = w.Write(block)
		_ = http.NewResponseController(w).Flush()
		block = nil
		if p.cut(passed) {
			panic(http.ErrAbortHandler)
		}
	}
}

func (p *cutter) counts(block []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, id, ok := bytes.Cut(block, []byte("id: ")); ok {
		id, _, _ = bytes.Cut(id, []byte("\n"))
		p.ids = append(p.ids, string(id))
	}
	if !bytes.Contains(block, []byte("data:")) || bytes.Contains(block, []byte(`"dev.runlog/type":"heartbeat"`)) {
		return false
	}
	if p.seen++; bytes.Contains(block, []byte("notifications/progress")) {
		p.progress++
	}
	return true
}

func (p *cutter) cut(passed int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cuts > 0 || p.after == 0 || passed < p.after {
		return false
	}
	p.cuts++
	return true
}

// A caller is a client of the Go SDK, and what it was told.
type caller struct {
	*sdk.ClientSession
	told func(*sdk.ProgressNotificationParams)

	mu  sync.Mutex
	got called
}

// called is what a caller knows at the end of its call.
type called struct {
	Progress []string
	Asked    []string
	Text     string
	Outcome  map[string]any
	IsError  bool
}

func callFrom(t *testing.T, url string, told func(*sdk.ProgressNotificationParams)) *caller {
	t.Helper()
	c := &caller{told: told}
	client := sdk.NewClient(&sdk.Implementation{Name: "interop", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { c.progress(r.Params) },
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.got.Asked = append(c.got.Asked, r.Params.Message)
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": strings.Contains(r.Params.Message, "send")}}, nil
		},
	})
	var err error
	if c.ClientSession, err = client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url + "/mcp"}, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *caller) progress(p *sdk.ProgressNotificationParams) {
	if p.Meta["dev.runlog/type"] == "heartbeat" {
		return
	}
	c.mu.Lock()
	c.got.Progress = append(c.got.Progress, p.Message)
	c.mu.Unlock()
	if c.told != nil {
		c.told(p)
	}
}

func (c *caller) call(ctx context.Context, agent, key string) error {
	params := &sdk.CallToolParams{Name: agent, Arguments: map[string]any{"input": "go"}}
	if key != "" {
		params.Meta = sdk.Meta{"dev.runlog/idempotency_key": key}
	}
	params.SetProgressToken("p")
	r, err := c.CallTool(ctx, params)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got.IsError, c.got.Text = r.IsError, r.Content[0].(*sdk.TextContent).Text
	c.got.Outcome, _ = r.StructuredContent.(map[string]any)
	return nil
}

// result waits for the notifications that were passed on before the answer: the
// SDK hands them out after it.
func (c *caller) result(t *testing.T, p *cutter) called {
	t.Helper()
	p.mu.Lock()
	want := p.progress
	p.mu.Unlock()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		got := c.got
		c.mu.Unlock()
		if len(got.Progress) >= want || time.Now().After(deadline) {
			return got
		}
	}
}

// TestGoMCPClient: the Go SDK's client, whose calls' streams are cut after every
// message, ends with what one has that was never cut.
func TestGoMCPClient(t *testing.T) {
	edges := edgesOf(t, newStage(t))
	for _, agent := range []string{"text", "tools"} {
		t.Run(agent, func(t *testing.T) {
			key := "go-" + agent
			whole := &cutter{edges: edges}
			want := mcpThrough(t, whole, agent, key)
			if len(want.Progress) < 3 || want.IsError {
				t.Fatalf("uncut: %+v", want)
			}
			wrong, controls := 0, 0
			step := 1 + whole.seen/16 // the longer ones at every other message
			for k := 1; k < whole.seen; k += step {
				p := &cutter{edges: edges, after: k}
				if got := mcpThrough(t, p, agent, key); p.cuts != 1 || !reflect.DeepEqual(got, want) {
					t.Errorf("cut %d times, after message %d of %d: %+v, want %+v", p.cuts, k, whole.seen, got, want)
				}
				if k < 3 || k%3 > 0 {
					continue
				}
				controls++
				if early := (&cutter{edges: edges, after: k, early: true}); !reflect.DeepEqual(mcpThrough(t, early, agent, key), want) {
					wrong++
				}
			}
			if wrong != controls {
				t.Errorf("coming back one message too early was noticed %d times of %d", wrong, controls)
			}
		})
	}
	t.Run("approval", func(t *testing.T) {
		for _, k := range []int{0, 1, 5, 11, 12} {
			got := mcpThrough(t, &cutter{edges: edges, after: k}, "approval-live", "")
			if len(got.Asked) != 2 || got.Text != "Sent, but not paid." {
				t.Errorf("cut after %d: %+v", k, got)
			}
		}
	})
	t.Run("cancel", func(t *testing.T) { goCancels(t, edges) })
}

func mcpThrough(t *testing.T, p *cutter, agent, key string) called {
	t.Helper()
	front := httptest.NewServer(p)
	defer front.Close()
	c := callFrom(t, front.URL, nil)
	defer func() { _ = c.Close() }()
	if err := c.call(t.Context(), agent, key); err != nil {
		t.Fatalf("%s: %v", agent, err)
	}
	return c.result(t, p)
}

// goCancels: a call whose context ends is a run that is cancelled.
func goCancels(t *testing.T, edges []string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var run string
	c := callFrom(t, edges[0], func(p *sdk.ProgressNotificationParams) {
		switch data, _ := p.Meta["dev.runlog/data"].(map[string]any); p.Meta["dev.runlog/type"] {
		case "run.started":
			id, _ := data["command_id"].(string)
			run = strings.TrimSuffix(id, ".invoke")
		case "tool.running":
			cancel()
		}
	})
	defer func() { _ = c.Close() }()
	if err := c.call(ctx, "cancel", ""); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		state := statusOf(t, edges[1], run)
		if state == "cancelled" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the run is %s", state)
		}
	}
}

func statusOf(t *testing.T, edge, run string) string {
	t.Helper()
	resp, err := http.Get(edge + "/v1/runs/" + run)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var state struct{ Status string }
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil {
		t.Fatal(err)
	}
	return state.Status
}

// edgesOf asks a stage for the addresses of its edges.
func edgesOf(t *testing.T, stage string) (urls []string) {
	t.Helper()
	resp, err := http.Get(stage)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var about struct{ Edges []*node }
	if err := json.NewDecoder(resp.Body).Decode(&about); err != nil {
		t.Fatal(err)
	}
	for _, n := range about.Edges {
		urls = append(urls, n.URL)
	}
	return urls
}
