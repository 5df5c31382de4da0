package scenarios_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func TestLogsAreValid(t *testing.T) {
	for _, sc := range scenarios.All() {
		t.Run(sc.Name, func(t *testing.T) {
			log := sc.Log()
			for i, e := range log {
				line := e.AppendLine(nil)
				back, err := event.Decode(line)
				if err != nil {
					t.Fatalf("event %d: %v", i+1, err)
				}
				if again := back.AppendLine(nil); string(again) != string(line) {
					t.Errorf("event %d changes when it is read: %s", i+1, again)
				}
				if len(line) > event.MaxEncoded {
					t.Errorf("event %d has %d bytes", i+1, len(line))
				}
			}
			fold, err := scenarios.Fold(log)
			if err != nil {
				t.Fatal(err)
			}
			if !fold.Idle() {
				t.Errorf("the session is not idle at its end")
			}
			checkEnd(t, sc, fold)
		})
	}
}

// checkEnd: everything is closed before the terminal event.
func checkEnd(t *testing.T, sc scenarios.Scenario, fold *event.Session) {
	t.Helper()
	want := map[event.Type]event.Status{event.RunCompleted: event.Completed, event.RunFailed: event.Failed, event.RunCancelled: event.Cancelled}[sc.Ends]
	if got := fold.Run(scenarios.RunID).Status; got != want {
		t.Errorf("the run is %s, want %s", got, want)
	}
	for _, m := range fold.Messages {
		if m.Status != event.Completed {
			t.Errorf("message %s is %s", m.MessageID, m.Status)
		}
	}
	for _, c := range fold.ToolCalls {
		if !c.Done() {
			t.Errorf("call %s is %s", c.CallID, c.Status)
		}
	}
	if len(fold.Approvals) > 0 {
		t.Errorf("approvals are open: %v", fold.Approvals)
	}
}

func TestEveryTypeHappens(t *testing.T) {
	seen := map[event.Type]bool{}
	for _, sc := range scenarios.All() {
		for _, e := range sc.Log() {
			seen[e.Type] = true
		}
	}
	for _, typ := range event.Types {
		if !seen[typ] {
			t.Errorf("no scenario has a %s", typ)
		}
	}
}

// A scenario can be played twice in one session: no id is used again.
func TestStepsFollowEachOther(t *testing.T) {
	for _, sc := range scenarios.All() {
		if sc.LogOnly {
			continue
		}
		t.Run(sc.Name, func(t *testing.T) {
			fold := event.NewSession("s")
			for _, run := range []string{"r1", "r2"} {
				in := scenarios.Invoke{RunID: run, TraceID: "t", CommandID: run + ".invoke", Agent: sc.Name, Fold: fold, Big: 100_000,
					Messages: []event.InputMessage{{MessageID: "of-" + run, Role: event.RoleUser, Parts: []event.Part{event.TextPart("hi")}}}}
				steps := sc.Steps(in)
				if last := steps[len(steps)-1].Event.Type; last != sc.Ends {
					t.Errorf("it ends with %s, want %s", last, sc.Ends)
				}
			}
			if len(fold.Runs) < 2 || !fold.Idle() {
				t.Errorf("two runs left %d, idle %v", len(fold.Runs), fold.Idle())
			}
			ids := map[string]bool{}
			for _, m := range fold.Messages {
				if ids[m.MessageID] {
					t.Errorf("message id %s is used twice", m.MessageID)
				}
				ids[m.MessageID] = true
			}
		})
	}
}

func TestNamed(t *testing.T) {
	names := []string{}
	for _, sc := range scenarios.All() {
		if sc.About == "" || strings.Contains(sc.About, "\n") {
			t.Errorf("%s does not say what it is about on one line", sc.Name)
		}
		if got, ok := scenarios.Named(sc.Name); !ok || got.Name != sc.Name {
			t.Errorf("Named(%q) = %v, %v", sc.Name, got.Name, ok)
		}
		names = append(names, sc.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(scenarios.All()) {
		t.Errorf("names are not distinct: %v", names)
	}
	if _, ok := scenarios.Named("nothing"); ok {
		t.Errorf("a name that is not there is found")
	}
}
