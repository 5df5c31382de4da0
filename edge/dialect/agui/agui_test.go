package agui_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/agui"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func ofRun(e event.Event) bool { return e.RunID == scenarios.RunID || e.Agent != "" }

func TestTranscripts(t *testing.T) {
	t.Run("session", func(t *testing.T) { dialecttest.Run(t, agui.Dialect{}, dialecttest.Options{}) })
	t.Run("run", func(t *testing.T) {
		dialecttest.Run(t, agui.Dialect{Run: scenarios.RunID, Old: true}, dialecttest.Options{Variant: "old-run", Mine: ofRun})
	})
}

// Whatever is told, the rules hold, and the reader ends up with the conversation.
func TestReadersTakeEveryScenario(t *testing.T) {
	for _, sc := range scenarios.All() {
		t.Run(sc.Name, func(t *testing.T) {
			log := sc.Log()
			r := newReader()
			for _, m := range dialecttest.Encode(t, agui.Dialect{}, log, nil) {
				if err := r.read(m.Data); err != nil {
					t.Fatalf("message %s: %v: %s", m.ID, err, m.Data)
				}
			}
			if r.running || r.errors > 1 || (r.errors == 1) != (sc.Ends == event.RunFailed) {
				t.Errorf("in the end running %v, errors %d", r.running, r.errors)
			}
			fold, err := scenarios.Fold(log)
			if err != nil {
				t.Fatal(err)
			}
			snapshot := newReader()
			snapshot.readAll(t, agui.Dialect{}.Snapshot(dialect.Snapshot, fold, dialect.Client))
			if got, want := r.knows(), snapshot.knows(); got != want {
				t.Errorf("the stream gave\n%s\nthe snapshot of its end\n%s", got, want)
			}
		})
	}
}

func (r *reader) readAll(t *testing.T, list []dialect.Message) {
	t.Helper()
	for _, m := range list {
		if err := r.read(m.Data); err != nil {
			t.Fatalf("%v: %s", err, m.Data)
		}
	}
}

// A reader that begins with a snapshot at any point, or is thrown back to one
// after it has read so far, ends up where the others do.
func TestSnapshotAnywhere(t *testing.T) {
	for _, d := range []agui.Dialect{{}, {Run: scenarios.RunID}} {
		for _, sc := range scenarios.All() {
			log := sc.Log()
			mine := func(e event.Event) bool { return d.Run == "" || ofRun(e) }
			whole := newReader()
			sent := dialecttest.Encode(t, d, log, mine)
			for _, m := range sent {
				_ = whole.read(m.Data)
			}
			fold := event.NewSession(scenarios.SessionID)
			for _, e := range log {
				if err := fold.Apply(e); err != nil {
					t.Fatal(err)
				}
				if r := fold.Run(scenarios.RunID); r == nil || r.StartedAt == nil || r.Status.Terminal() && d.Run != "" {
					continue
				}
				fresh, reset := newReader(), newReader()
				for _, m := range sent {
					if m.Of.Seq <= e.Seq {
						_ = reset.read(m.Data)
					}
				}
				fresh.readAll(t, d.Snapshot(dialect.Snapshot, fold, dialect.Client))
				reset.readAll(t, d.Snapshot(dialect.Reset, fold, dialect.Client))
				for _, m := range sent {
					if m.Of.Seq <= e.Seq {
						continue
					}
					for name, r := range map[string]*reader{"fresh": fresh, "reset": reset} {
						if err := r.read(m.Data); err != nil {
							t.Fatalf("%s %+v, %s from %d: message %s: %v", sc.Name, d, name, e.Seq, m.ID, err)
						}
					}
				}
				if fresh.running || reset.running {
					t.Errorf("%s %+v from %d: the run does not end", sc.Name, d, e.Seq)
				}
				if d.Run != "" {
					continue // the client's own messages are only in the snapshot
				}
				if got := fresh.knows(); got != whole.knows() {
					t.Errorf("%s from %d:\n%s, want\n%s", sc.Name, e.Seq, got, whole.knows())
				}
				if got := reset.knows(); got != whole.knows() {
					t.Errorf("%s reset at %d:\n%s, want\n%s", sc.Name, e.Seq, got, whole.knows())
				}
			}
		}
	}
}

// A run that was cancelled or refused before it began is told to its client, and
// to nobody else: another one is under way.
func TestRunsThatNeverBegan(t *testing.T) {
	fold := event.NewSession("s")
	for i, e := range []event.Event{event.New(event.SessionCreated, event.SessionCreatedData{}), event.New(event.RunStarted, event.RunStartedData{Attempt: 1}),
		event.New(event.RunQueued, event.RunQueuedData{})} {
		e.Seq, e.SessionID, e.RunID = event.Seq(i+1), "s", []string{"", "r1", "r2"}[i]
		if err := fold.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []event.Event{event.New(event.RunCancelled, event.RunCancelledData{By: "client"}), event.New(event.RunFailed, event.RunFailedData{Code: event.CodeConflict, Message: "busy"})} {
		end.Seq, end.SessionID, end.RunID = 4, "s", "r2"
		if list := encode(t, agui.Dialect{}, fold, end); len(list) > 0 {
			t.Errorf("%s of a run that never began, in a session: %s", end.Type, list[0].Data)
		}
		r := newReader()
		r.readAll(t, encode(t, agui.Dialect{Run: "r2"}, fold, end))
		if r.running || (r.errors == 1) != (end.Type == event.RunFailed) {
			t.Errorf("%s: running %v, %d errors", end.Type, r.running, r.errors)
		}
	}
}

func encode(t testing.TB, d dialect.Dialect, before *event.Session, e event.Event) []dialect.Message {
	t.Helper()
	line := bytes.TrimSuffix(e.AppendLine(nil), []byte("\n"))
	list, err := dialect.Encode(d, e, line, dialect.Client, func() (*event.Session, error) { return before, nil })
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// What is copied from the log is what a decoder would have made of it.
func TestDeltasAreCopiedAsTheyAre(t *testing.T) {
	odd := append([]string{"plain", `"quoted"`, `back\slash`, `end\`, "\x00\n\t", "é🌤\u2028"}, scenarios.Oddities...)
	for _, id := range []string{"m", `m"1`, "é", `\`} {
		for _, text := range odd {
			for typ, data := range map[event.Type]any{
				event.TextDelta:      event.TextDeltaData{MessageID: id, Delta: text},
				event.ReasoningDelta: event.ReasoningDeltaData{ReasoningID: id, Delta: text},
				event.ToolArgsDelta:  event.ToolArgsDeltaData{CallID: id, Delta: text},
			} {
				e := event.New(typ, data)
				e.Seq, e.SessionID = 1, "s"
				stored, err := event.Decode(e.AppendLine(nil))
				if err != nil {
					t.Fatal(err)
				}
				spaced := stored
				spaced.Data = append([]byte(" "), stored.Data...) // not as runlog writes it
				for _, ev := range []event.Event{stored, spaced} {
					var got struct {
						Message string `json:"messageId"`
						Call    string `json:"toolCallId"`
						Delta   string `json:"delta"`
					}
					list := agui.Dialect{}.Event(ev, nil, dialect.Client)
					if len(list) != 1 || json.Unmarshal(list[0].Data, &got) != nil {
						t.Fatalf("%s %q %q: %+v", typ, id, text, list)
					}
					if got.Message+got.Call != id || got.Delta != text {
						t.Errorf("%s %q %q gave %s", typ, id, text, list[0].Data)
					}
				}
			}
		}
	}
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte(`{"message_id":"m","delta":"x"}`))
	f.Add([]byte(`{"message_id":"m","delta":"x","delta":"y"}`))
	f.Add([]byte(`{"message_id":"m","delta":"\"}"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var want event.TextDeltaData
		var of struct {
			MessageID *string `json:"message_id"`
			Delta     *string `json:"delta"`
		}
		valid := json.Unmarshal(data, &want) == nil && json.Unmarshal(data, &of) == nil && of.MessageID != nil && of.Delta != nil
		list := agui.Dialect{}.Event(event.Event{Type: event.TextDelta, Data: data}, nil, dialect.Client)
		if !valid {
			return // such data is not stored
		}
		var got struct{ MessageID, Delta string }
		if len(list) != 1 || json.Unmarshal(list[0].Data, &got) != nil || got.MessageID != want.MessageID || got.Delta != want.Delta {
			t.Errorf("%s gave %+v, want %+v", data, got, want)
		}
	})
}
