package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/mcp"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

var watched = mcp.Dialect{ID: `7`, Token: `"p"`, Asks: true}

func TestTranscripts(t *testing.T) { dialecttest.Run(t, watched, dialecttest.Options{}) }

// Whoever can ask its user is asked; the call goes on when that was answered.
func TestApprovalsAreAskedFor(t *testing.T) {
	sc, _ := scenarios.Named("approval")
	list := encode(t, watched, sc.Log())
	var asked []message
	for _, m := range list {
		if m.Method == "elicitation/create" {
			asked = append(asked, m)
		}
	}
	if len(asked) != 2 || asked[0].ID != "run_1/call_1" || asked[1].ID != "run_1/call_2" || asked[1].Params.Message != "Allow pay?\n"+`{"amount":3}` {
		t.Errorf("asked: %+v", asked)
	}
	if last := list[len(list)-1]; last.Result == nil || last.Result.Structured.Text != "Sent, but not paid." {
		t.Errorf("the end: %+v", last)
	}
	list = encode(t, mcp.Dialect{ID: "1"}, sc.Log())
	r := list[0].Result
	if len(list) != 1 || r.IsError || len(r.Structured.Waits) != 2 || r.Structured.Waits[1].CallID != "call_2" || !strings.Contains(r.Content[0]["text"].(string), "/v1/runs/run_1/approvals/call_2") {
		t.Errorf("who cannot ask: %+v", list)
	}
}

// Who calls a run that is under way is asked for what it waits for now, and not
// for what was decided.
func TestWhatIsDecidedIsNotAskedAgain(t *testing.T) {
	sc, _ := scenarios.Named("approval")
	log := sc.Log()
	for still, want := range map[int64]int{0: 0, time.Date(2099, 3, 5, 0, 0, 0, 0, time.UTC).UnixMicro(): 2} {
		d := watched
		d.From, d.Still = log[len(log)-1].Seq, still
		asked := 0
		for _, m := range encode(t, d, log) {
			if m.Method == "elicitation/create" {
				asked++
			}
		}
		if asked != want {
			t.Errorf("waiting until %d: asked %d times, want %d", still, asked, want)
		}
	}
}

type message struct {
	ID     any
	Method string
	Params struct {
		Progress float64
		Message  string
		Meta     map[string]json.RawMessage `json:"_meta"`
	}
	Result *struct {
		Content    []map[string]any
		Structured mcp.Outcome `json:"structuredContent"`
		IsError    bool
	}
}

func encode(t testing.TB, d mcp.Dialect, log []event.Event) (list []message) {
	t.Helper()
	for _, sent := range dialecttest.Encode(t, d, log, nil) {
		var m message
		if err := json.Unmarshal(sent.Data, &m); err != nil {
			t.Fatalf("%s: %v", sent.Data, err)
		}
		list = append(list, m)
	}
	return list
}

// Every call is answered once, last; progress only grows; and who gives no token
// gets the answer alone.
func TestEveryCallIsAnsweredOnce(t *testing.T) {
	for _, sc := range scenarios.All() {
		if sc.LogOnly {
			continue
		}
		at := 0.0
		list := encode(t, watched, sc.Log())
		for i, m := range list {
			if answered := m.Result != nil; answered != (i == len(list)-1) {
				t.Errorf("%s: message %d of %d: %+v", sc.Name, i, len(list), m)
			}
			if m.Method == "notifications/progress" {
				if m.Params.Progress <= at {
					t.Errorf("%s: progress %v after %v", sc.Name, m.Params.Progress, at)
				}
				at = m.Params.Progress
			}
		}
		r := list[len(list)-1].Result
		waits := sc.Name == "client-tool"
		if r.IsError != (sc.Ends != event.RunCompleted) || waits != (len(r.Structured.Waits) > 0) || r.Structured.RunID != scenarios.RunID || r.Content[0]["type"] != "text" {
			t.Errorf("%s: %+v", sc.Name, r)
		}
		if quiet := encode(t, mcp.Dialect{ID: `"x"`}, sc.Log()); len(quiet) != 1 || quiet[0].ID != "x" {
			t.Errorf("%s: without a token: %+v", sc.Name, quiet)
		}
	}
}

// The messages of text.delta add up to what stands.
func TestDeltasAddUp(t *testing.T) {
	for _, name := range []string{"text", "unicode"} {
		sc, _ := scenarios.Named(name)
		text := ""
		list := encode(t, watched, sc.Log())
		for _, m := range list {
			switch string(m.Params.Meta["dev.runlog/type"]) {
			case `"text.delta"`:
				text += m.Params.Message
			case `"step.started"`:
				text = ""
			}
		}
		if got := list[len(list)-1].Result.Structured.Text; got != text || text == "" {
			t.Errorf("%s: %q, want %q", name, got, text)
		}
	}
}

// A heartbeat is more than what was told, and less than what follows.
func TestHeartbeatsLieBetween(t *testing.T) {
	last := 0.0
	for _, h := range []dialect.Heartbeat{{At: "4", ElapsedMS: 0}, {At: "4", ElapsedMS: 10}, {At: "4", ElapsedMS: 1 << 40}, {At: "5.2", ElapsedMS: 1 << 41}, {At: "5"}} {
		h.Status = event.Running
		var m message
		if err := json.Unmarshal(watched.Heartbeat(h)[0].Data, &m); err != nil {
			t.Fatal(err)
		}
		if m.Params.Progress <= last || m.Params.Progress > 6 || h.At[0] == '4' && m.Params.Progress > 5 {
			t.Errorf("%+v: %v after %v", h, m.Params.Progress, last)
		}
		last = m.Params.Progress
	}
	if len(mcp.Dialect{ID: "1"}.Heartbeat(dialect.Heartbeat{At: "1"})) > 0 {
		t.Error("nobody wanted to know")
	}
}

func TestSnapshotAnswersWhatIsOver(t *testing.T) {
	for _, sc := range scenarios.All() {
		fold, err := scenarios.Fold(sc.Log())
		if err != nil {
			t.Fatal(err)
		}
		d := watched
		d.Run = scenarios.RunID
		c := mcp.NewCall(d)
		list := c.Snapshot(dialect.Reset, fold, dialect.Client)
		if len(list) != 1 || !c.Over() || string(list[0].Data) != string(c.Response()) || !strings.Contains(string(list[0].Data), `"result":`) {
			t.Errorf("%s: %v", sc.Name, list)
		}
	}
}

func TestElicitID(t *testing.T) {
	run, call, ok := mcp.CutElicitID(mcp.ElicitID("run_1", "call/2"))
	if run != "run_1" || call != "call/2" || !ok {
		t.Errorf("%q %q %v", run, call, ok)
	}
	if _, _, ok := mcp.CutElicitID("7"); ok {
		t.Error("7 names no call")
	}
}
