package terminal

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/clients/go/edgetest"
	"github.com/runlog-dev/runlog/event"
)

// live is an edge whose run goes on until it is cancelled.
func live(t *testing.T) *edgetest.Edge { return edgetest.New(t, edgetest.Golden(t)[:12]) }

func ending(t *testing.T, typ, data string) event.Event {
	return parse(t, `{"v":1,"seq":13,"id":"ses_01k9example-13","session_id":"ses_01k9example","run_id":"run_01k9example","time":"2026-11-30T12:00:03Z","type":"`+typ+`","data":`+data+`}`)
}

// start runs a command in the background; its exit code arrives on the channel.
func (s *session) start(t *testing.T, args ...string) <-chan int {
	exit := make(chan int, 1)
	go func() { exit <- s.run(t, args...) }()
	return exit
}

func (s *session) interrupt(t *testing.T) {
	t.Helper()
	select {
	case s.interrupts <- os.Interrupt:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody listens for Ctrl-C")
	}
}

func exitOf(t *testing.T, exit <-chan int) int {
	t.Helper()
	select {
	case code := <-exit:
		return code
	case <-time.After(20 * time.Second):
		t.Fatal("the command did not end")
		return 0
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestCtrlCCancels(t *testing.T) {
	edge := live(t)
	edge.OnCancel = func(reason string) {
		edge.Append(ending(t, "run.cancelled", `{"by":"client","reason":"`+reason+`"}`))
	}
	s := newSession(edge)
	exit := s.start(t, "run", "hi")
	s.interrupt(t)
	if code := exitOf(t, exit); code != ExitCancelled {
		t.Errorf("exit %d", code)
	}
	if !strings.Contains(s.stdout.String(), "cancelled by client: Ctrl-C at the terminal") || !strings.Contains(s.stderr.String(), "cancelling;") {
		t.Errorf("stdout\n%s\nstderr\n%s", s.stdout.String(), s.stderr.String())
	}
}

// A cancel that comes too late does not pretend: the exit code is the run's.
func TestCtrlCTooLate(t *testing.T) {
	edge := live(t)
	edge.OnCancel = func(string) {
		edge.Append(ending(t, "run.completed", `{"finish_reason":"stop","usage":{}}`))
	}
	s := newSession(edge)
	exit := s.start(t, "run", "hi", "--json")
	s.interrupt(t)
	if code := exitOf(t, exit); code != ExitOK {
		t.Errorf("exit %d: %s", code, s.stderr.String())
	}
	jsonLines(t, s.stdout.String())
}

func TestCtrlCTwiceLeavesTheRun(t *testing.T) {
	edge := live(t)
	release := make(chan struct{})
	edge.OnCancel = func(string) { <-release }
	defer close(release)
	s := newSession(edge)
	exit := s.start(t, "run", "hi")
	s.interrupt(t)
	s.interrupt(t)
	if code := exitOf(t, exit); code != ExitLeft {
		t.Errorf("exit %d", code)
	}
	if !strings.Contains(s.stderr.String(), "come back with: runlog attach "+edge.RunID) {
		t.Errorf("stderr: %s", s.stderr.String())
	}
}

// A cancel that is refused is said to be, and can be tried again.
func TestCtrlCRefused(t *testing.T) {
	edge := live(t)
	s := newSession(edge)
	exit := s.start(t, "run", "hi")
	eventually(t, "the run", func() bool { return edge.Asked("GET", "/v1/runs/") > 0 })
	id := edge.RunID
	edge.RunIDChanges(func() { edge.RunID = "another" })
	s.interrupt(t)
	eventually(t, "the refusal", func() bool { return strings.Contains(s.stderr.String(), "not cancelled:") })
	edge.RunIDChanges(func() { edge.RunID = id })
	edge.OnCancel = func(string) { edge.Append(ending(t, "run.cancelled", `{"by":"client"}`)) }
	s.interrupt(t)
	if code := exitOf(t, exit); code != ExitCancelled {
		t.Errorf("exit %d: %s", code, s.stderr.String())
	}
}

// Who attached only looks on: Ctrl-C leaves and cancels nothing.
func TestCtrlCDetaches(t *testing.T) {
	edge := live(t)
	for _, id := range []string{edge.RunID, edge.SessionID} {
		s := newSession(edge)
		exit := s.start(t, "attach", id)
		s.interrupt(t)
		if code := exitOf(t, exit); code != ExitLeft || !strings.Contains(s.stderr.String(), "runlog attach "+id) {
			t.Errorf("exit %d: %s", code, s.stderr.String())
		}
	}
	if n := edge.Asked("POST", "/v1/runs/"); n != 0 {
		t.Errorf("%d cancels", n)
	}
}

// A snapshot in mid-message and the events after it read as one text.
func TestSnapshotGoesOn(t *testing.T) {
	edge := edgetest.New(t, edgetest.Golden(t))
	edge.Snapshot = snapshotAt(t, 23)
	s := newSession(edge)
	if exit := s.run(t, "attach", edge.RunID, "--snapshot"); exit != ExitOK {
		t.Fatalf("exit %d: %s", exit, s.stderr.String())
	}
	golden(t, edge, "attach_snapshot_running", s.stdout.String())
	edge.Snapshot = snapshotAt(t, 12)
	s = newSession(edge)
	s.run(t, "attach", edge.RunID, "--snapshot")
	if out := s.stdout.String(); !strings.Contains(out, "\nLet me look. 🌤\n") {
		t.Errorf("the text was torn:\n%s", out)
	}
}

func snapshotAt(t *testing.T, seq event.Seq) json.RawMessage {
	t.Helper()
	fold := event.NewSession("ses_01k9example")
	for _, e := range edgetest.Golden(t)[:seq] {
		if err := fold.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	return fold.EncodePublic()
}

// News that is no JSON, or JSON of many lines, is still one object on one line.
func TestJSONStaysOnOneLine(t *testing.T) {
	var out strings.Builder
	for _, data := range []string{"{\n \"seq\": 1\n}", "not\njson", "", "{}"} {
		jsonView{&out, &out}.event(event.Event{Type: "fire\"works", Seq: 1, Data: json.RawMessage(data)})
	}
	if strings.Count(out.String(), "\n") != 4 {
		t.Errorf("got %s", out.String())
	}
	jsonLines(t, out.String())
}

func TestHeartbeats(t *testing.T) {
	edge := goldenEdge(t)
	edge.Fault = func(int, edgetest.Request) edgetest.Fault { return edgetest.Fault{Heartbeat: true} }
	s := newSession(edge)
	s.run(t, "run", "hi", "--json")
	jsonLines(t, s.stdout.String())
	if !strings.HasPrefix(s.stdout.String(), `{"type":"heartbeat","status":"running","elapsed_ms":5,"head":1}`+"\n"+`{"v":1,"seq":1,`) {
		t.Errorf("stdout: %s", s.stdout.String())
	}
	beat := func(status string) event.Event {
		return event.Event{Type: "heartbeat", Data: json.RawMessage(`{"status":"` + status + `"}`)}
	}
	text, _ := viewOf(false, []event.Event{beat("running"), beat("unattended"), beat("unattended"), beat("running"), beat("running")})
	golden(t, edge, "heartbeats", text.stdout.String())
}
