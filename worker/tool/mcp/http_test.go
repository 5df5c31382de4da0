package mcp_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
	"github.com/runlog-dev/runlog/worker/tool/mcp"
)

// A webServer is an MCP server over HTTP whose tools can be watched.
type webServer struct {
	srv       *sdk.Server
	started   chan struct{} // "wait" has begun
	ended     chan struct{} // the context of "wait" has ended
	cancelled chan struct{} // notifications/cancelled has come
	runs      atomic.Int64  // of "count"
}

func newWebServer() *webServer {
	w := &webServer{
		srv:       sdk.NewServer(&sdk.Implementation{Name: "web", Version: "1"}, nil),
		started:   make(chan struct{}, 10),
		ended:     make(chan struct{}, 10),
		cancelled: make(chan struct{}, 10),
	}
	sdk.AddTool(w.srv, &sdk.Tool{Name: "wait"}, func(ctx context.Context, req *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
		w.started <- struct{}{}
		<-ctx.Done()
		w.ended <- struct{}{}
		return &sdk.CallToolResult{}, nil, nil
	})
	sdk.AddTool(w.srv, &sdk.Tool{Name: "count"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		w.runs.Add(1)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "counted"}}}, nil, nil
	})
	w.srv.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if method == "notifications/cancelled" {
				w.cancelled <- struct{}{}
			}
			return next(ctx, method, req)
		}
	})
	return w
}

func (w *webServer) handler(opt *sdk.StreamableHTTPOptions) http.Handler {
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return w.srv }, opt)
}

func receive(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("never seen: %s", what)
	}
}

func TestCancelOverHTTPReachesTheServer(t *testing.T) {
	for name, opt := range map[string]*sdk.StreamableHTTPOptions{
		"stream": nil, "json": {JSONResponse: true}, "resumable": {EventStore: sdk.NewMemoryEventStore(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWebServer()
			web := httptest.NewServer(w.handler(opt))
			t.Cleanup(web.Close)
			s := openURL(t, web.URL)
			ctx, cancel := context.WithCancel(t.Context())
			ch := start(ctx, find(t, s, "wait"), tool.Call{Args: `{}`, Progress: func(event.Progress) {}})
			receive(t, w.started, "the call")
			begin := time.Now()
			cancel()
			mustBe(t, await(t, ch).err, context.Canceled)
			if took := time.Since(begin); took > atOnce {
				t.Errorf("returned %s after the cancel", took)
			}
			receive(t, w.cancelled, "notifications/cancelled")
			receive(t, w.ended, "the end of the handler's context")
			if got := textOf(do(t, s, "count", `{}`)); got != "counted" {
				t.Errorf("the next call: %q", got)
			}
		})
	}
}

func TestTimeoutOverHTTP(t *testing.T) {
	w := newWebServer()
	web := httptest.NewServer(w.handler(nil))
	t.Cleanup(web.Close)
	s := openURL(t, web.URL, func(o *mcp.Options) { o.Timeout = 200 * time.Millisecond })
	a := await(t, start(t.Context(), find(t, s, "wait"), tool.Call{Args: `{}`}))
	mustBe(t, a.err, context.DeadlineExceeded, tool.ErrEffectUnknown)
	if a.took > 200*time.Millisecond+atOnce {
		t.Errorf("timed out after %s", a.took)
	}
	receive(t, w.cancelled, "notifications/cancelled")
}

// serve listens on addr, or any port if it is empty.
func serve(t *testing.T, addr string, h http.Handler) *httptest.Server {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	web := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	web.Start()
	t.Cleanup(func() { vanish(web) })
	return web
}

// vanish is what a crash of the server looks like from outside.
func vanish(web *httptest.Server) {
	web.Listener.Close()
	web.CloseClientConnections()
	web.Close()
}

func TestARestartedHTTPServerIsConnectedToAgain(t *testing.T) {
	w := newWebServer()
	web := serve(t, "", w.handler(nil))
	addr := web.Listener.Addr().String()
	s := openURL(t, web.URL)
	count := find(t, s, "count")
	waiting := start(t.Context(), find(t, s, "wait"), tool.Call{Args: `{}`})
	receive(t, w.started, "the call")
	vanish(web)
	a := await(t, waiting)
	mustBe(t, a.err, tool.ErrUnavailable, tool.ErrEffectUnknown)

	_, err := count.Call(t.Context(), tool.Call{Args: `{}`})
	mustBe(t, err, tool.ErrUnavailable)
	if strings.Contains(err.Error(), tool.ErrEffectUnknown.Error()) {
		t.Errorf("nobody was there, but the error is %v", err)
	}

	again := newWebServer() // knows nothing of the session
	serve(t, addr, again.handler(nil))
	res, err := count.Call(t.Context(), tool.Call{Args: `{}`})
	if err != nil || textOf(res) != "counted" {
		t.Fatalf("after the restart: %q, %v", textOf(res), err)
	}
	if n := again.runs.Load(); n != 1 {
		t.Errorf("the tool ran %d times", n)
	}
}

func TestHeadersGoToTheConfiguredHostOnly(t *testing.T) {
	w := newWebServer()
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		leaked.Store(leaked.Load() || r.Header.Get("Authorization") != "")
		w.handler(&sdk.StreamableHTTPOptions{Stateless: true}).ServeHTTP(rw, r)
	}))
	t.Cleanup(other.Close)
	var greeted atomic.Bool
	home := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		greeted.Store(greeted.Load() || r.Header.Get("Authorization") == "Bearer t0ken")
		http.Redirect(rw, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(home.Close)
	s := openURL(t, home.URL, func(o *mcp.Options) { o.Headers = map[string]string{"Authorization": "Bearer t0ken"} })
	do(t, s, "count", `{}`)
	if !greeted.Load() || leaked.Load() {
		t.Errorf("sent to the host: %v, to another: %v", greeted.Load(), leaked.Load())
	}
}

func TestHTTPErrorsAreToldApart(t *testing.T) {
	status := http.StatusOK
	w := newWebServer()
	mcpHandler := w.handler(nil)
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if status != http.StatusOK {
			http.Error(rw, "no", status)
			return
		}
		mcpHandler.ServeHTTP(rw, r)
	}))
	t.Cleanup(web.Close)
	s := openURL(t, web.URL)
	count := find(t, s, "count")
	for _, c := range []struct {
		status  int
		unknown bool
	}{{http.StatusUnauthorized, false}, {http.StatusServiceUnavailable, true}, {http.StatusTooManyRequests, false}} {
		status = c.status
		_, err := count.Call(t.Context(), tool.Call{Args: `{}`})
		mustBe(t, err, tool.ErrUnavailable)
		if !strings.Contains(err.Error(), http.StatusText(c.status)) ||
			strings.Contains(err.Error(), tool.ErrEffectUnknown.Error()) != c.unknown {
			t.Errorf("status %d: %v", c.status, err)
		}
		status = http.StatusOK
		if got := textOf(do(t, s, "count", `{}`)); got != "counted" {
			t.Errorf("after status %d: %q", c.status, got)
		}
	}
}

// Answers over the limit fail their call in each of the ways they may come.
func TestAnAnswerOverTheLimitOverHTTP(t *testing.T) {
	for name, opt := range map[string]*sdk.StreamableHTTPOptions{"stream": nil, "json": {JSONResponse: true}} {
		t.Run(name, func(t *testing.T) {
			w := newWebServer()
			sdk.AddTool(w.srv, &sdk.Tool{Name: "huge"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: strings.Repeat("x", 2<<20)}}}, nil, nil
			})
			web := httptest.NewServer(w.handler(opt))
			t.Cleanup(web.Close)
			s := openURL(t, web.URL, func(o *mcp.Options) { o.MaxFrame = 1 << 20 })
			if res := do(t, s, "huge", `{}`); !res.Failed || !strings.Contains(textOf(res), "over the limit of 1048576") {
				t.Errorf("got %+v", res)
			}
			do(t, s, "count", `{}`)
		})
	}
}
