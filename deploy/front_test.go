package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

const (
	patience = 60 * time.Second       // bounds what a test waits for
	idle     = 3 * time.Second        // what proxies wait for the next byte, in place of 75 s
	ping     = 500 * time.Millisecond // what edges let pass between signs of life, in place of 15 s
)

// A front is two edges, as processes on one event log. What a worker would append, the tests do.
type front struct {
	edges [2]*testservers.Process
	addrs [2]string
	log   *eventlog.Log
}

// startFront starts the edges, each with settings of its own, one in a line, if there are any.
func startFront(t *testing.T, env ...string) *front {
	t.Helper()
	return startFrontOf(t, testservers.RunlogBinary(t), env...)
}

func startFrontOf(t *testing.T, runlog string, env ...string) *front {
	t.Helper()
	cluster, dir := testservers.NATS(t, 1), t.TempDir()
	f := &front{}
	for i := range f.edges {
		f.addrs[i] = testservers.FreeAddr(t)
		own := []string{
			"RUNLOG_NATS_URL=" + cluster.URL(), "RUNLOG_CATALOG_URL=sqlite:" + filepath.Join(dir, "catalog.db"),
			"RUNLOG_ARTIFACTS_URL=dir:" + filepath.Join(dir, "artifacts"), "RUNLOG_LISTEN=" + f.addrs[i], "RUNLOG_PING=" + ping.String(),
			"RUNLOG_LOG=info", "RUNLOG_TRUSTED_PROXIES=127.0.0.1",
		}
		if len(env) > 0 {
			own = append(own, strings.Split(env[i], "\n")...)
		}
		f.edges[i] = testservers.StartProcess(t, runlog, []string{"edge"}, own)
		if slices.ContainsFunc(own, func(v string) bool { return strings.HasPrefix(v, "RUNLOG_TLS_CERT=") }) {
			f.edges[i].WaitTLS(f.addrs[i])
			continue
		}
		f.edges[i].WaitReady("http://" + f.addrs[i] + "/readyz")
	}
	nc, err := nats.Connect(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if f.log, err = eventlog.Open(t.Context(), nc, eventlog.Options{}); err == nil {
		err = f.log.Announce(t.Context(), "demo", []byte(`{"name":"demo"}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// restart brings an edge back that was stopped or killed.
func (f *front) restart(i int) {
	f.edges[i].Start()
	f.edges[i].WaitReady("http://" + f.addrs[i] + "/readyz")
}

// A scribe appends to a session, an event in a frame.
type scribe struct {
	w   *eventlog.Writer
	run string
	seq int
}

// scribe opens a session of the default tenant that has one event.
func (f *front) scribe(ctx context.Context, session, run string) (*scribe, error) {
	s := &scribe{w: f.log.Writer(eventlog.Key{Tenant: "default", Session: session}, eventlog.Head{}), run: run}
	return s, s.write(ctx, event.RunStarted, event.RunStartedData{Agent: "demo", Attempt: 1})
}

func (s *scribe) say(ctx context.Context, text string) error {
	return s.write(ctx, event.TextDelta, event.TextDeltaData{MessageID: "m", Delta: text})
}

func (s *scribe) write(ctx context.Context, kind event.Type, data any) error {
	e := event.New(kind, data)
	e.RunID, e.TraceID = s.run, "trace-"+s.run
	if _, err := s.w.Append(e); err != nil {
		return err
	}
	s.seq++
	return s.w.Sync(ctx)
}

// A proxy is a program before the edges, with its shipped configuration: only ports, names of edges and the time it
// waits are others.
type proxy struct {
	name  string
	file  string // of this directory; empty: conf
	conf  string
	start func(t testing.TB, conf string) *testservers.Process
	// fails are the checks that it does not pass, and why.
	fails map[string]string
}

var proxies = []proxy{
	{name: "nginx", file: "nginx/runlog.conf", start: startNginxConf},
	{name: "HAProxy", file: "haproxy/haproxy.cfg", start: testservers.StartHAProxy},
	{name: "Caddy", file: "caddy/Caddyfile", start: testservers.StartCaddy},
	{name: "nginx as most write it", start: startNginxConf, fails: map[string]string{
		"a WebSocket":                          "no Upgrade header reaches the edge",
		"uploads":                              "1 MiB is the most",
		"a request's body arrives as it comes": "it is kept until it is whole",
		"silence on a WebSocket":               "there is none",
		"a wait for a run's end":               "all of them time out alike",
		"storms":                               "EventSource gets 502",
		"no token in the log of storms":        "the log of errors has the whole request",
	}, conf: `
upstream runlog_edges { server edge1:8080; server edge2:8080; }
log_format runlog '$uri';
server {
    listen 8080;
    access_log /var/log/nginx/access.log runlog;
    proxy_read_timeout 75s;
    location / { proxy_pass http://runlog_edges; }
}
`},
}

func startNginxConf(t testing.TB, conf string) *testservers.Process {
	t.Helper()
	conf = strings.NewReplacer("/var/log/nginx/access.log", "/dev/stdout", "/var/log/nginx/error.log", "stderr").Replace(conf)
	conf = "events {}\nhttp {\naccess_log off;\n" + conf + "}\n"
	testservers.CheckNginx(t, conf)
	return testservers.StartNginx(t, conf)
}

// up starts the proxy before edges and returns its process and its base URL.
func (p proxy) up(t *testing.T, edges ...string) (*testservers.Process, string) {
	t.Helper()
	conf, addr := p.conf, testservers.FreeAddr(t)
	if p.file != "" {
		raw, err := os.ReadFile(p.file)
		if err != nil {
			t.Fatal(err)
		}
		conf = string(raw)
	}
	_, port, _ := strings.Cut(addr, ":")
	conf = strings.NewReplacer("edge1:8080", edges[0], "edge2:8080", edges[len(edges)-1], "listen 8080", "listen "+addr, "bind :8080", "bind "+addr,
		":8080 {", "http://127.0.0.1:"+port+" {", "75s", idle.String()).Replace(conf)
	process := p.start(t, conf)
	process.WaitReady("http://" + addr + "/readyz")
	return process, "http://" + addr
}

// A source is a browser's EventSource: it comes back after a lost connection with its last id, and gives up at any
// answer but 200. It goes from one URL to the next, as through a name that has several addresses.
type source struct {
	urls []string
	// wait is how long after a break it comes back; nil: at once, more or less.
	wait func() time.Duration

	mu       sync.Mutex
	ids      []string
	breaks   []time.Time // when connections were lost
	tries    []time.Time // when it came back
	politely int         // breaks that looked like the end of the stream
	gaveUp   error       // why it does not come back
}

// run follows the stream until ctx ends or it gives up.
func (s *source) run(ctx context.Context) {
	for i := 0; ; i++ {
		err := s.connect(ctx, s.urls[i%len(s.urls)])
		if ctx.Err() != nil || s.broke(err) {
			return
		}
		wait := 100 * time.Millisecond
		if s.wait != nil {
			wait = s.wait()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (s *source) broke(err error) (gaveUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaks = append(s.breaks, time.Now())
	if errors.Is(err, io.EOF) {
		s.politely++
	}
	var status statusError
	if errors.As(err, &status) {
		s.gaveUp = err
	}
	return s.gaveUp != nil
}

type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

func (s *source) connect(ctx context.Context, url string) error {
	s.mu.Lock()
	last := ""
	if len(s.ids) > 0 {
		last = s.ids[len(s.ids)-1]
	}
	s.tries = append(s.tries, time.Now())
	s.mu.Unlock()
	st, err := openStream(ctx, url, "text/event-stream", last)
	if err != nil {
		return err
	}
	defer st.close()
	for {
		id, err := st.next()
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.ids = append(s.ids, id)
		s.mu.Unlock()
	}
}

// reach waits until the source has got n events, or given up.
func (s *source) reach(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		got, gaveUp := len(s.ids), s.gaveUp != nil
		s.mu.Unlock()
		if gaveUp || got >= n {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d events of %d: %w", got, n, ctx.Err())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// whole returns what is wrong with what the source has got: each of 1 to n once, in order, and no end that was none.
func (s *source) whole(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range s.ids {
		if id != fmt.Sprint(i+1) {
			return fmt.Errorf("event %d came as %s", i+1, id)
		}
	}
	switch {
	case s.gaveUp != nil:
		return fmt.Errorf("gave up: %w", s.gaveUp)
	case len(s.ids) != n:
		return fmt.Errorf("%d events of %d", len(s.ids), n)
	case s.politely > 0:
		return fmt.Errorf("%d of %d broken streams looked like their end", s.politely, len(s.breaks))
	case len(s.breaks) == 0:
		return errors.New("nothing broke off")
	}
	return nil
}
