package systemtest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// The NATS node that leads the log dies in the middle of runs: they complete, viewers see everything once.
func leaderKilled(t *testing.T, p *production) {
	e := p.at[0]
	leader := p.leader(t, "LOG_0")
	counting := p.watch(t, e.submit(t, request{Input: countOn}), 1)
	counting.sees(t, event.ToolProgress, 2)
	talking := p.watch(t, e.submit(t, request{Input: "tell"}), 0)
	talking.sees(t, event.TextDelta, 2)
	leader.Kill()
	during := p.watch(t, p.submitSoon(t, request{Input: "meanwhile"}), 1)
	_, s := talking.completed(t, e)
	if got := said(s, talking.run.RunID); got != told() {
		t.Errorf("the text is %q", got)
	}
	counting.completed(t, e)
	during.completed(t, e)
	leader.Start()
}

// submitSoon repeats a request that is refused for the moment, with one key, as clients do.
func (p *production) submitSoon(t *testing.T, r request) run {
	t.Helper()
	key := "soon-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	var got run
	eventually(t, "a run to be accepted", func() bool {
		a, err := p.at[0].try(t.Context(), http.MethodPost, "/v1/runs", r.body(), "Idempotency-Key", key)
		if err != nil {
			t.Fatal(err)
		}
		if a.StatusCode == http.StatusServiceUnavailable {
			if a.Header.Get("Retry-After") == "" {
				t.Errorf("503 without Retry-After: %s", a.body)
			}
			return false
		}
		if a.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: %s", a.Status, a.body)
		}
		got = into[run](t, a)
		return true
	})
	return got
}

// leader is the node that leads a stream.
func (p *production) leader(t *testing.T, stream string) *testservers.Node {
	t.Helper()
	return p.nats.Named(p.stream(t, stream).CachedInfo().Cluster.Leader)
}

// streamInfo asks a node what it knows of a stream, and does not wait for long.
func (p *production) streamInfo(node int, name string) (*jetstream.StreamInfo, error) {
	nc, err := nats.Connect(p.nats.Node(node).URL())
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// stream opens a stream of JetStream, until the end of the test.
func (p *production) stream(t *testing.T, name string) jetstream.Stream {
	t.Helper()
	nc, err := nats.Connect(p.nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// All of NATS is away: new requests are told to come back, open streams stay and catch up afterwards.
func natsDown(t *testing.T, p *production) {
	e := p.at[0]
	counting := p.watch(t, e.submit(t, request{Input: `count {"n":100,"delay_ms":100}`}), 1)
	counting.sees(t, event.ToolProgress, 2)
	r := e.submit(t, request{Input: "tell"})
	s := e.listen(t, "/v1/runs/"+r.RunID+"/events", sse)
	defer s.close()
	seen := s.until(event.TextDelta)
	p.nats.Kill()

	for _, c := range []struct{ method, path, body string }{
		{http.MethodPost, "/v1/runs", request{Input: "now?"}.body()}, {http.MethodGet, "/v1/runs/" + r.RunID, ""},
		{http.MethodPost, "/v1/runs/" + r.RunID + "/cancel", "{}"}, {http.MethodGet, "/v1/sessions/" + r.SessionID + "/snapshot", ""},
		{http.MethodGet, "/readyz", ""},
	} {
		began := time.Now()
		a := e.do(t, http.StatusServiceUnavailable, c.method, c.path, c.body)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s %s: refused after %v", c.method, c.path, took)
		}
		if a.Header.Get("Retry-After") == "" || into[problem](t, a).Code != event.CodeUnavailable {
			t.Errorf("%s %s: %v: %s", c.method, c.path, a.Header, a.body)
		}
	}
	if a := e.get(t, "/healthz"); a.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %s", a.Status)
	}

	p.nats.Start()
	seen = append(seen, s.rest()...)
	if got := last(events(t, seen)); got.Type != event.RunCompleted {
		t.Errorf("the open stream ends with %s", got.Type)
	}
	if d := differ(seen, way{sse, ""}.uncut(t, p.at[1], r.RunID)); d != "" {
		t.Errorf("the stream that stayed open: %s", d)
	}
	counting.completed(t, e)
	checkLog(t, e, r.SessionID)
	if got := p.submitSoon(t, request{Input: "now"}); p.at[1].ended(t, got.RunID).Status != event.Completed {
		t.Errorf("the next run: %+v", got)
	}
}

// Postgres is away: runs go on as if nothing were, searches are told to come back, and the catalog catches up.
func postgresDown(t *testing.T, p *production) {
	e := p.at[0]
	const trace = "0af7651916cd43dd8448eb211c80319c"
	talking := p.watch(t, e.submit(t, request{TraceID: trace, Input: "tell"}), 0)
	talking.sees(t, event.TextDelta, 2)
	p.pg.Kill()
	during := e.finish(t, request{TraceID: trace, Input: "write while it is away"})
	if during.Status != event.Completed {
		t.Errorf("a run without the catalog: %+v", during)
	}
	talking.completed(t, e)
	for _, path := range []string{"/v1/runs?trace_id=" + trace, "/v1/traces/" + trace} {
		a := e.do(t, http.StatusServiceUnavailable, http.MethodGet, path, "")
		if a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	p.pg.Start()
	eventually(t, "the catalog to have both runs, completed", func() bool {
		a, err := e.try(t.Context(), http.MethodGet, "/v1/runs?status=completed&trace_id="+trace, "")
		return err == nil && a.StatusCode == http.StatusOK && len(into[struct{ Runs []run }](t, a).Runs) == 2
	})
}

// S3 is away: the tool that writes an artifact fails visibly, the run goes on; afterwards it works again.
func s3Down(t *testing.T, p *production) {
	e := p.at[0]
	before := e.finish(t, request{Input: "write before"})
	p.s3.Kill()
	during := e.finish(t, request{Input: "write during"})
	if during.Status != event.Completed || !strings.HasPrefix(during.Text, "not written: ") || during.ToolCalls[0].Status != event.Failed {
		t.Errorf("the run is %s and says %q", during.Status, during.Text)
	}
	if strings.Contains(during.Text, testservers.S3SecretKey) {
		t.Errorf("the model hears the secret: %q", during.Text)
	}
	checkLog(t, e, during.SessionID)
	big := e.finish(t, request{Input: "big"})
	checkLog(t, e, big.SessionID)
	e.refused(t, http.StatusServiceUnavailable, event.CodeUnavailable, http.MethodGet, before.Artifacts[0].URL, "")
	if next := e.finish(t, request{SessionID: during.SessionID, Input: "and without a file"}); next.Status != event.Completed {
		t.Errorf("the next run: %+v", next)
	}
	p.s3.Start()
	if got := e.get(t, before.Artifacts[0].URL); string(got.body) != "before" {
		t.Errorf("the artifact from before: %q", got.body)
	}
	after := e.finish(t, request{Input: "write after"})
	if got := e.get(t, after.Artifacts[0].URL); string(got.body) != "after" {
		t.Errorf("the artifact from after: %q", got.body)
	}
}

// Without any worker a run waits, and its stream says so; it begins when one is there.
func nobodyWorks(t *testing.T, p *production) {
	p.worker[0].Stop()
	p.worker[1].Stop()
	r := p.at[0].submit(t, request{Input: "is anybody there?"})
	if r.Status != event.Pending {
		t.Errorf("the run is %s", r.Status)
	}
	s := p.at[1].listen(t, "/v1/runs/"+r.RunID+"/events", sse)
	defer s.close()
	began := time.Now()
	for m, err := s.next(); !strings.Contains(m.data, `"unattended"`); m, err = s.next() {
		if err != nil || m.ofLog() {
			t.Fatalf("after %v: %q, %v", time.Since(began), m.raw, err)
		}
	}
	if took := time.Since(began); took < lease || took > 6*lease {
		t.Errorf("unattended after %v", took)
	}
	p.worker[0].again()
	p.worker[1].again()
	if got := last(events(t, s.rest())); got.Type != event.RunCompleted {
		t.Errorf("the run ends with %s", got.Type)
	}
	checkLog(t, p.at[0], r.SessionID)
}

// The catalog is a projection: dropped and rebuilt from the log it is the same.
func catalogRebuilt(t *testing.T, p *production) {
	e := p.at[0]
	done := e.finish(t, request{TraceID: "b7ad6b7169203331b7ad6b7169203331", Input: "the last one"})
	eventually(t, "the catalog to have the last run", func() bool {
		a, err := e.try(t.Context(), http.MethodGet, "/v1/runs?status=completed&trace_id=b7ad6b7169203331b7ad6b7169203331", "")
		return err == nil && strings.Contains(string(a.body), done.RunID)
	})
	before := p.catalog(t)
	p.command("reindex")
	if after := p.catalog(t); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("the catalog had %d runs and has %d, or they differ:\n%s\nwere\n%s", len(before), len(after),
			strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

// catalog lists all that a search gives.
func (p *production) catalog(t *testing.T) []string {
	t.Helper()
	var all []string
	for cursor := ""; ; {
		page := into[struct {
			Runs []json.RawMessage
			Next string `json:"next_cursor"`
		}](t, p.at[0].get(t, "/v1/runs?limit=50&cursor="+cursor))
		for _, r := range page.Runs {
			all = append(all, string(r))
		}
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
}
