package terminal

import (
	"strings"
	"testing"
	"time"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

// Events of several runs say whose they are, and spans of one do not end those
// of another.
func TestTimelineOfSeveralRuns(t *testing.T) {
	var out strings.Builder
	line := &timeline{screen: screen{out: &out}, opened: map[string]event.Time{}}
	env := Env{Now: func() time.Time { return time.Unix(0, 0).UTC() }}
	line.head(env, runlog.Trace{TraceID: "t", Runs: []runlog.Run{
		{RunID: "a", SessionID: "s", Agent: "x", Status: event.Completed}, {RunID: "b", SessionID: "u", Agent: "y", Status: event.Failed},
	}})
	begin := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for i, e := range []struct {
		typ  event.Type
		run  string
		data string
	}{
		{event.RunStarted, "a", `{"agent":"x"}`},
		{event.RunStarted, "b", `{"agent":"y"}`},
		{event.StepStarted, "a", `{"step":1}`},
		{event.StepStarted, "b", `{"step":1}`},
		{event.StepCompleted, "a", `{"step":1}`},
		{event.RunFailed, "b", `{"code":"model_error","message":"gone"}`},
		{event.RunCompleted, "a", `{"finish_reason":"stop"}`},
		{"new.type", "a", `{"x":1}`},
		{event.StepCompleted, "a", `[]`},
	} {
		line.add(event.Event{Seq: event.Seq(i + 1), Type: e.typ, RunID: e.run, Time: event.At(begin.Add(time.Duration(i) * time.Second)), Data: []byte(e.data)})
	}
	line.flush()
	want := `trace t · 2 runs
completed #1 a · agent x · session s · - · -
failed #2 b · agent y · session u · - · -
     0.000s      1  #1 run.started         x
     1.000s      2  #2 run.started         y
     2.000s      3  #1 step.started        1
     3.000s      4  #2 step.started        1
     4.000s      5  #1 step.completed      1  2.0s
     5.000s      6  #2 run.failed          model_error gone  4.0s
     6.000s      7  #1 run.completed       stop  6.0s
     7.000s      8  #1 new.type            
     8.000s      9  #1 step.completed      
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
