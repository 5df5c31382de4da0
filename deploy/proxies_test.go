package deploy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// A check is what has to work through a proxy.
type check struct {
	name string
	test func(ctx context.Context, f *front, url, session string) error
}

var checks = []check{
	{"server-sent events", func(ctx context.Context, f *front, url, session string) error {
		return liveStream(ctx, f, url, session, "text/event-stream")
	}},
	{"lines of JSON", func(ctx context.Context, f *front, url, session string) error {
		return liveStream(ctx, f, url, session, "application/x-ndjson")
	}},
	{"a run's own stream", liveRun},
	{"a WebSocket", liveSocket},
	{"silence on a stream", silentStream},
	{"silence on a WebSocket", silentSocket},
	{"a wait for a run's end", silentWait},
	{"ranges of artifacts", ranges},
	{"uploads", uploads},
	{"a client's address", clientAddress},
	{"no token in the log", withToken},
}

// Everything works through each proxy with its shipped configuration; what does not with nginx as most people write
// it is listed, and the manual says so.
func TestProxies(t *testing.T) {
	f := startFront(t)
	var all []*standing
	for _, p := range proxies {
		process, url := p.up(t, f.addrs[:]...)
		all = append(all, &standing{p, process, url})
	}
	t.Run("calm", func(t *testing.T) {
		for _, p := range all {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				p.calm(t, f)
			})
		}
	})
	t.Run("storms", func(t *testing.T) { storms(t, f, all) })
	for _, p := range all {
		log := p.process.Log()
		if strings.Contains(log, secret) || !strings.Contains(log, "/v1/sessions/") {
			t.Errorf("the log of %s has the token, or nothing: %s", p.name, lineOf(log, secret))
		}
	}
	if line := lineOf(f.edges[0].Log()+f.edges[1].Log(), secret); line != "" {
		t.Errorf("an edge logs the token: %s", line)
	}
}

// secret is the token of a page.
const secret = "secret-of-a-page"

// A standing proxy runs before the edges.
type standing struct {
	proxy
	process *testservers.Process
	url     string
}

// calm checks all at once.
func (p *standing) calm(t *testing.T, f *front) {
	var group sync.WaitGroup
	failed := make([]error, len(checks))
	for i, c := range checks {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			failed[i] = c.test(ctx, f, p.url, fmt.Sprintf("%s-%d", strings.ReplaceAll(p.name, " ", "-"), i))
		})
	}
	p.judge(t, "a request's body arrives as it comes", arrives(t, p.proxy))
	group.Wait()
	for i, c := range checks {
		p.judge(t, c.name, failed[i])
	}
}

// judge holds the outcome of a check to what is expected of the proxy.
func (p proxy) judge(t *testing.T, name string, err error) {
	t.Helper()
	switch why, fails := p.fails[name]; {
	case !fails && err != nil:
		t.Errorf("%s: %v", name, err)
	case fails && err == nil:
		t.Errorf("%s works, although %s: the manual is too pessimistic", name, why)
	case fails:
		t.Logf("%s fails as expected (%s): %v", name, why, err)
	}
}

func lineOf(log, text string) string {
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// A silent edge is given up: else the checks of silence would prove nothing.
func TestProxiesGiveUpSilentEdges(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.URL.Path != "/readyz" {
			fmt.Fprint(w, "id: 1\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(silent.Close)
	for _, p := range proxies[:3] {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			_, url := p.up(t, strings.TrimPrefix(silent.URL, "http://"))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			st, err := openStream(ctx, url+"/", "text/event-stream", "")
			if err == nil {
				defer st.close()
				_, err = st.next()
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err = st.next(); err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A stream reads the ids of events, whatever the transport.
type stream struct {
	resp *http.Response
	rd   *bufio.Reader
	tr   *http.Transport
}

// openStream uses a connection of its own, as a browser that has lost one.
func openStream(ctx context.Context, url, accept, last string) (*stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Cache-Control", "no-cache")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	return sendStream(req)
}

func sendStream(req *http.Request) (*stream, error) {
	tr := &http.Transport{DisableCompression: true}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer: %s", err) //nolint:errorlint // an EOF here is no end of a stream
	}
	st := &stream{resp, bufio.NewReader(resp.Body), tr}
	if resp.StatusCode != http.StatusOK {
		st.close()
		return nil, statusError(resp.StatusCode)
	}
	return st, nil
}

func (s *stream) close() {
	s.resp.Body.Close()
	s.tr.CloseIdleConnections()
}

// next returns the id of the next event; io.EOF after an end that looks proper.
func (s *stream) next() (string, error) {
	for {
		line, err := s.rd.ReadString('\n')
		if err != nil {
			return "", err
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			return strings.TrimSpace(id), nil
		}
		var of struct{ Seq int }
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &of) == nil && of.Seq > 0 {
			return fmt.Sprint(of.Seq), nil
		}
	}
}

// lockstep writes each event only when the one before it has come through. One of them at least comes without delay:
// a proxy that waits for more to send along makes all of them late.
func lockstep(ctx context.Context, s *scribe, next func() (string, error)) error {
	soonest, wrote := time.Hour, time.Time{}
	for range 10 {
		id, err := next()
		if err != nil || id != fmt.Sprint(s.seq) {
			return errors.Join(fmt.Errorf("event %d came as %q", s.seq, id), err)
		}
		if !wrote.IsZero() {
			soonest = min(soonest, time.Since(wrote))
		}
		wrote = time.Now()
		if err := s.say(ctx, "x"); err != nil {
			return err
		}
	}
	if soonest > 150*time.Millisecond {
		return fmt.Errorf("the soonest event came after %s", soonest)
	}
	return nil
}

func liveStream(ctx context.Context, f *front, url, session, accept string) error {
	s, err := f.scribe(ctx, session, "run-"+session)
	if err != nil {
		return err
	}
	st, err := openStream(ctx, url+"/v1/sessions/"+session+"/events", accept, "")
	if err != nil {
		return err
	}
	defer st.close()
	return lockstep(ctx, s, st.next)
}

// liveRun submits a run and follows it in the same request.
func liveRun(ctx context.Context, f *front, url, session string) error {
	body := fmt.Sprintf(`{"input":"x","session_id":%q,"run_id":"run-%s"}`, session, session)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/runs", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	st, err := sendStream(req)
	if err != nil {
		return err
	}
	defer st.close()
	s, err := f.scribe(ctx, session, "run-"+session)
	if err != nil {
		return err
	}
	if err := lockstep(ctx, s, st.next); err != nil {
		return err
	}
	if err := s.write(ctx, event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop}); err != nil {
		return err
	}
	for {
		if _, err := st.next(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("the run's end: %w", err)
		}
	}
}

func dialSocket(ctx context.Context, f *front, url, session string) (*scribe, *websocket.Conn, func() (string, error), error) {
	s, err := f.scribe(ctx, session, "run-"+session)
	if err != nil {
		return nil, nil, nil, err
	}
	conn, _, err := websocket.Dial(ctx, url+"/v1/sessions/"+session+"/events?after=0", &websocket.DialOptions{Subprotocols: []string{"runlog.v1"}})
	if err != nil {
		return nil, nil, nil, err
	}
	return s, conn, func() (string, error) {
		for {
			_, raw, err := conn.Read(ctx)
			if err != nil {
				return "", err
			}
			var m struct{ ID, Answer string }
			if err := json.Unmarshal(raw, &m); err != nil || m.ID != "" || m.Answer != "" {
				return m.ID + m.Answer, err
			}
		}
	}, nil
}

func liveSocket(ctx context.Context, f *front, url, session string) error {
	s, conn, next, err := dialSocket(ctx, f, url, session)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	if err := lockstep(ctx, s, next); err != nil {
		return err
	}
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"id":"c","do":"cancel","run_id":"none"}`)); err != nil {
		return err
	}
	for {
		if got, err := next(); err != nil || got == "c" {
			return err
		}
	}
}

// silentStream says nothing for twice as long as the proxy waits.
func silentStream(ctx context.Context, f *front, url, session string) error {
	s, err := f.scribe(ctx, session, "run-"+session)
	if err != nil {
		return err
	}
	st, err := openStream(ctx, url+"/v1/sessions/"+session+"/events?after=1", "text/event-stream", "")
	if err != nil {
		return err
	}
	defer st.close()
	time.Sleep(2 * idle)
	return errors.Join(s.say(ctx, "x"), lockstep(ctx, s, st.next))
}

// silentWait asks for a run that nobody works on and for its end, for twice as long as the proxy waits for a stream.
func silentWait(ctx context.Context, _ *front, url, session string) error {
	resp, body, err := send(ctx, http.MethodPost, url+"/v1/runs?wait="+(2*idle).String(), strings.NewReader(`{"agent":"demo","input":"x","session_id":"`+session+`"}`))
	if err == nil && resp.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

func silentSocket(ctx context.Context, f *front, url, session string) error {
	s, conn, next, err := dialSocket(ctx, f, url, session)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	if _, err := next(); err != nil {
		return err
	}
	second := make(chan error, 1) // pongs are answered by whoever reads
	go func() { _, err := next(); second <- err }()
	time.Sleep(2 * idle)
	return errors.Join(s.say(ctx, "x"), <-second)
}

// send makes a request with a body of known or unknown length.
func send(ctx context.Context, method, url string, body io.Reader, header ...string) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp, got, err
}

// put uploads an artifact and returns its path.
func put(ctx context.Context, url string, body io.Reader) (string, error) {
	resp, got, err := send(ctx, http.MethodPost, url+"/v1/artifacts?name=x", body, "Content-Type", "application/json")
	if err != nil || resp.StatusCode != http.StatusCreated {
		return "", errors.Join(fmt.Errorf("upload: %s", status(resp)), err)
	}
	var info struct{ URL string }
	return info.URL, errors.Join(json.Unmarshal(got, &info))
}

func status(resp *http.Response) string {
	if resp == nil {
		return "no answer"
	}
	return resp.Status
}

func ranges(ctx context.Context, _ *front, url, _ string) error {
	content := bytes.Repeat([]byte("0123456789"), 2000)
	path, err := put(ctx, url, bytes.NewReader(content))
	if err != nil {
		return err
	}
	for given, want := range map[string]string{"bytes=0-9": "206 0123456789", "bytes=-3": "206 789", "bytes=19995-": "206 56789", "bytes=20000-": "416 "} {
		resp, got, err := send(ctx, http.MethodGet, url+path, nil, "Range", given, "Accept-Encoding", "gzip")
		if err != nil || !strings.HasPrefix(fmt.Sprintf("%d %s", resp.StatusCode, got), want) {
			return errors.Join(fmt.Errorf("%s: %s %.40q, want %s", given, status(resp), got, want), err)
		}
	}
	resp, got, err := send(ctx, http.MethodGet, url+path, nil, "Accept-Encoding", "gzip")
	if err != nil || !bytes.Equal(got, content) || resp.ContentLength != int64(len(content)) || !strings.HasPrefix(resp.Header.Get("ETag"), `"`) {
		return errors.Join(fmt.Errorf("all of it: %s, %d bytes", status(resp), len(got)), err)
	}
	resp, _, err = send(ctx, http.MethodGet, url+path, nil, "If-None-Match", resp.Header.Get("ETag"))
	if err != nil || resp.StatusCode != http.StatusNotModified {
		return errors.Join(fmt.Errorf("not modified: %s", status(resp)), err)
	}
	return nil
}

// uploads are large, with and without a length.
func uploads(ctx context.Context, _ *front, url, _ string) error {
	content := make([]byte, 8<<20)
	_, _ = rand.Read(content)
	for _, body := range []io.Reader{bytes.NewReader(content), io.MultiReader(bytes.NewReader(content))} {
		path, err := put(ctx, url, body)
		if err != nil {
			return err
		}
		_, got, err := send(ctx, http.MethodGet, url+path, nil)
		if err != nil || !bytes.Equal(got, content) {
			return errors.Join(fmt.Errorf("%d bytes came back", len(got)), err)
		}
	}
	return nil
}

// clientAddress is what the edge takes for the client's: never what the client says.
func clientAddress(ctx context.Context, f *front, url, session string) error {
	path := "/v1/runs/address-" + session
	if _, _, err := send(ctx, http.MethodGet, url+path, nil, "X-Forwarded-For", "203.0.113.99, 203.0.113.7"); err != nil {
		return err
	}
	for ctx.Err() == nil {
		line := lineOf(f.edges[0].Log()+f.edges[1].Log(), path)
		switch {
		case line == "":
			time.Sleep(10 * time.Millisecond) // the record comes after the answer
		case strings.Contains(line, "client=127.0.0.1 "), strings.Contains(line, "client=203.0.113.7 "):
			return nil // the proxy's peer, who is trusted here, and so what he says
		default:
			return fmt.Errorf("the edge says %s", line)
		}
	}
	return ctx.Err()
}

func withToken(ctx context.Context, f *front, url, session string) error {
	if _, err := f.scribe(ctx, session, "run-"+session); err != nil {
		return err
	}
	_, _, err := send(ctx, http.MethodGet, url+"/v1/sessions/"+session+"/events?follow=false&access_token="+secret, nil)
	return err
}

// arrives checks that the beginning of a body reaches the edge before its end is sent.
func arrives(t *testing.T, p proxy) error {
	began := make(chan struct{})
	var once sync.Once
	edge := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
			once.Do(func() { close(began) })
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(edge.Close)
	_, url := p.up(t, strings.TrimPrefix(edge.URL, "http://"))
	reader, writer := io.Pipe()
	answered := make(chan error, 1)
	go func() {
		_, _, err := send(t.Context(), http.MethodPost, url+"/", reader)
		answered <- err
	}()
	_, _ = writer.Write(make([]byte, 64<<10))
	var err error
	select {
	case <-began:
	case <-time.After(2 * idle):
		err = errors.New("the edge has seen nothing of a body that is not whole")
	}
	writer.Close()
	return errors.Join(err, <-answered)
}

// storms kills and restarts edges and proxies under sources that follow a session, six through each proxy, and holds
// each proxy to what was lost, repeated, or looked like the end. A seventh follows one in which nothing happens until
// the end, so that it has no id to come back with.
func storms(t *testing.T, f *front, all []*standing) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s, err := f.scribe(ctx, "storm", "run-storm")
	if err != nil {
		t.Fatal(err)
	}
	token, err := f.token(ctx, "storm")
	if err != nil {
		t.Fatal(err)
	}
	quiet, err := f.scribe(ctx, "quiet", "run-quiet")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	following, stop := context.WithCancel(ctx)
	defer running.Wait()
	defer stop()
	sources := make([][6]*source, len(all))
	seventh := make([]*source, len(all))
	for i, p := range all {
		seventh[i] = &source{urls: []string{fmt.Sprintf("%s/v1/sessions/quiet/events?after=%d", p.url, quiet.seq)}}
		running.Go(func() { seventh[i].run(following) })
		for j := range sources[i] {
			src := &source{urls: []string{p.url + "/v1/sessions/storm/events?access_token=" + token}}
			sources[i][j] = src
			running.Go(func() { src.run(following) })
		}
	}
	for _, blow := range f.blows(all) {
		blow()
		if err := s.say(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		for i := range sources {
			for _, src := range sources[i] {
				if err := src.reach(ctx, s.seq); err != nil {
					t.Fatalf("%s: %v", all[i].name, err)
				}
			}
		}
	}
	if err := quiet.say(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		list := []error{seventh[i].reach(ctx, 1), seventh[i].gaveUp}
		for j, src := range sources[i] {
			if err := src.whole(s.seq); err != nil {
				list = append(list, fmt.Errorf("client %d: %w", j, err))
			}
		}
		p.judge(t, "storms", errors.Join(list...))
		p.judge(t, "no token in the log of storms", without(p.process.Log(), token[:20]))
	}
	if err := without(f.edges[0].Log()+f.edges[1].Log(), token[:20]); err != nil {
		t.Errorf("edges: %v", err)
	}
}

// without returns an error if a log has a secret.
func without(log, secret string) error {
	if line := lineOf(log, secret); line != "" {
		return fmt.Errorf("the log has the token: %s", line)
	}
	return nil
}

// token is what a page follows a session with.
func (f *front) token(ctx context.Context, session string) (string, error) {
	resp, got, err := send(ctx, http.MethodPost, "http://"+f.addrs[0]+"/v1/tokens", strings.NewReader(fmt.Sprintf(`{"session_id":%q}`, session)))
	if err != nil || resp.StatusCode != http.StatusCreated {
		return "", errors.Join(fmt.Errorf("token: %s", status(resp)), err)
	}
	var answer struct{ Token string }
	return answer.Token, json.Unmarshal(got, &answer)
}

// blows are what happens to edges and proxies, one after the other. After the last all edges are up.
func (f *front) blows(all []*standing) []func() {
	down := func(end func(*testservers.Process)) func() {
		return func() {
			end(f.edges[0])
			end(f.edges[1])
			time.Sleep(time.Second) // clients come back, and find nobody
			f.restart(0)
			f.restart(1)
		}
	}
	return []func(){
		func() {},
		f.edges[0].Kill,
		func() { f.restart(0) },
		f.edges[1].Stop,
		func() { f.restart(1) },
		func() {
			for _, p := range all {
				p.process.Kill()
				p.process.Start()
				p.process.WaitReady(p.url + "/readyz")
			}
		},
		down((*testservers.Process).Kill),
		down((*testservers.Process).Stop),
	}
}
