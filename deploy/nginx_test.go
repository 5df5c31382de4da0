package deploy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/internal/testservers"
)

var serverLine = regexp.MustCompile(`(?m)^\s+server (\S+:\d+)[ ;]`)

// upstreams returns the edges that deploy/nginx/runlog.conf knows.
func upstreams(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, match := range serverLine.FindAllStringSubmatch(read(t, "deploy/nginx/runlog.conf"), -1) {
		names = append(names, match[1])
	}
	return names
}

// startNginx runs the shipped configuration before other edges, and returns its base URL.
func startNginx(t *testing.T, edges ...string) string {
	t.Helper()
	return startNginxOf(t, 512, edges...)
}

// startNginxOf does it with so many connections, to both sides.
func startNginxOf(t *testing.T, connections int, edges ...string) string {
	t.Helper()
	conf := read(t, "deploy/nginx/runlog.conf")
	for i, name := range upstreams(t) {
		conf = strings.ReplaceAll(conf, name, strings.TrimPrefix(edges[i%len(edges)], "http://"))
	}
	addr := testservers.FreeAddr(t)
	conf = strings.ReplaceAll(conf, "listen 8080;", "listen "+addr+"; location = /ready { return 200; }")
	conf = fmt.Sprintf("events { worker_connections %d; }\nhttp {\naccess_log off;\n%s}\n", connections, conf)
	testservers.CheckNginx(t, conf)
	testservers.StartNginx(t, conf).WaitReady("http://" + addr + "/ready")
	return "http://" + addr
}

// Each event has to come through before the next one is produced.
func TestNginxDeliversEachEventAtOnce(t *testing.T) {
	next := make(chan struct{})
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "id: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	}))
	t.Cleanup(edge.Close)
	resp := get(t, startNginx(t, edge.URL), nil)
	lines := bufio.NewScanner(resp.Body)
	for i := range 5 {
		if !lines.Scan() || lines.Text() != fmt.Sprintf("id: %d", i) {
			t.Fatalf("event %d: got %q, %v", i, lines.Text(), lines.Err())
		}
		lines.Scan() // the empty line
		next <- struct{}{}
	}
}

// When nginx has used up its connections, EventSources come back, and programs are told to: neither is told of a fault.
func TestNginxWithoutConnections(t *testing.T) {
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 1\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(edge.Close)
	for _, source := range []bool{true, false} {
		for _, connections := range []int{32, 33} { // with an odd one left for a client, and none for an edge
			url, refused := startNginxOf(t, connections, edge.URL), 0
			for range connections {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/sessions/s/events", nil)
				if err != nil {
					t.Fatal(err)
				}
				if source {
					req.Header = http.Header{"Accept": {"text/event-stream"}, "Cache-Control": {"no-cache"}}
				}
				resp, err := http.DefaultTransport.RoundTrip(req)
				if err != nil {
					refused++
					continue
				}
				t.Cleanup(func() { resp.Body.Close() })
				if resp.StatusCode == http.StatusOK {
					continue
				}
				refused++
				if source || resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Retry-After") == "" {
					t.Errorf("%d connections, an EventSource: %t: %s %v", connections, source, resp.Status, resp.Header)
				}
			}
			if refused == 0 {
				t.Errorf("%d connections take %d streams", connections, connections)
			}
		}
	}
}

// A client that goes away is seen by the edge, which would otherwise stream to nobody.
func TestNginxTellsTheEdgeThatAClientLeft(t *testing.T) {
	left := make(chan struct{})
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, ":\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(left)
	}))
	t.Cleanup(edge.Close)
	get(t, startNginx(t, edge.URL), nil).Body.Close()
	select {
	case <-left:
	case <-time.After(20 * time.Second):
		t.Error("the edge never heard of it")
	}
}

func TestNginxGoesPastADeadEdge(t *testing.T) {
	edge := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(edge.Close)
	url := startNginx(t, testservers.FreeAddr(t), edge.URL)
	for range 6 {
		if resp := get(t, url, nil); resp.StatusCode != http.StatusOK {
			t.Fatalf("one dead edge of two: %s", resp.Status)
		}
	}
}

func TestNginxPassesRangesAndWhatTheClientSaidAboutItself(t *testing.T) {
	body := strings.Repeat("0123456789", 1000)
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"strong"`)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Seen", r.Host+" "+r.Header.Get("X-Forwarded-For")+" "+r.Header.Get("Last-Event-ID"))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(body))
	}))
	t.Cleanup(edge.Close)
	url := startNginx(t, edge.URL)
	resp := get(t, url, http.Header{"Range": {"bytes=-7"}, "Accept-Encoding": {"gzip"}, "Last-Event-Id": {"41"}})
	got, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusPartialContent || string(got) != "3456789" {
		t.Errorf("suffix range: %s %q", resp.Status, got)
	}
	if seen, want := resp.Header.Get("X-Seen"), strings.TrimPrefix(url, "http://")+" 127.0.0.1 41"; seen != want {
		t.Errorf("the edge saw %q, want %q", seen, want)
	}
	whole := get(t, url, http.Header{"Accept-Encoding": {"gzip"}})
	if whole.Header.Get("ETag") != `"strong"` || whole.ContentLength != int64(len(body)) {
		t.Errorf("whole: ETag %s, length %d", whole.Header.Get("ETag"), whole.ContentLength)
	}
}

// A large body reaches the edge while it is being sent, and is not sent to a second edge after it was begun.
func TestNginxLeavesLimitsToTheEdge(t *testing.T) {
	began, requests := make(chan struct{}), make(chan int64, 4)
	edge := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadFull(r.Body, make([]byte, 1)); err == nil {
			close(began)
		}
		n, _ := io.Copy(io.Discard, r.Body)
		requests <- n + 1
	}))
	t.Cleanup(edge.Close)
	reader, writer := io.Pipe()
	go func() {
		_, _ = writer.Write(make([]byte, 1<<20))
		<-began // the edge reads before the body has ended
		_, _ = writer.Write(make([]byte, 2<<20))
		writer.Close()
	}()
	resp, err := http.Post(startNginx(t, edge.URL), "application/json", reader)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n := <-requests; resp.StatusCode != http.StatusOK || n != 3<<20 {
		t.Errorf("%s, the edge got %d bytes", resp.Status, n)
	}
}

func TestNginxPassesWebSocket(t *testing.T) {
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		_ = conn.Write(r.Context(), websocket.MessageText, []byte("hello"))
		_ = conn.Close(websocket.StatusNormalClosure, "")
	}))
	t.Cleanup(edge.Close)
	conn, _, err := websocket.Dial(t.Context(), startNginx(t, edge.URL), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if _, got, err := conn.Read(t.Context()); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// get asks without following what a client would add by itself.
func get(t *testing.T, url string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		req.Header[key] = values
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func decode(t *testing.T, resp *http.Response, into any) {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%s: %v in %s", resp.Status, err, body)
	}
}
