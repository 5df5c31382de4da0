package edge

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/mcp"
	"github.com/runlog-dev/runlog/edge/dialect/openai"
	"github.com/runlog-dev/runlog/edge/dialect/rpc"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func TestDialectsHaveNamesOfTheirOwn(t *testing.T) {
	names := map[string]bool{}
	for _, d := range dialects {
		if names[d.Name()] {
			t.Errorf("two dialects have the name %s", d.Name())
		}
		names[d.Name()] = true
	}
}

// Whatever a log holds, no dialect panics, breaks a line, or lets a client see what is
// internal.
func TestEveryDialectTakesWhateverIsStored(t *testing.T) {
	for _, d := range dialects {
		for _, kind := range append([]event.Type{"something.new"}, event.Types...) {
			for _, data := range []string{`{}`, `{"message_id":1,"parts":"x","args":[]}`, `{"message_id":"m","delta":"a\n\u2028b","parts":[{"type":"text","text":"hush","internal":true}],"args":"{","content":null}`} {
				e := event.New(kind, json.RawMessage(data))
				e.Seq, e.SessionID, e.ID, e.RunID = 1, "s", "s-1", "r"
				for _, m := range encoded(t, d, e, dialect.Client) {
					if bytes.ContainsAny(m.Data, "\n\r") || !json.Valid(m.Data) && string(m.Data) != "[DONE]" || strings.ContainsAny(m.Event, "\n\r") {
						t.Errorf("%s %s: %s", d.Name(), kind, m.Data)
					}
				}
				e.Internal = true
				if got := encoded(t, d, e, dialect.Client); len(got) != 0 {
					t.Errorf("%s shows an internal %s: %s", d.Name(), kind, got[0].Data)
				}
				encoded(t, d, e, dialect.Auditor)
			}
		}
		for _, list := range [][]dialect.Message{d.Heartbeat(dialect.Heartbeat{}), d.Moved(7), d.Snapshot(dialect.Reset, event.NewSession("s"), dialect.Client)} {
			for _, m := range list {
				if !json.Valid(m.Data) || bytes.Contains(m.Data, []byte("\n")) || m.Data[0] != '{' {
					t.Errorf("%s: %s", d.Name(), m.Data)
				}
			}
		}
	}
}

// encoded is what a dialect says of an event that follows nothing.
func encoded(t *testing.T, d dialect.Dialect, e event.Event, to dialect.Audience) []dialect.Message {
	t.Helper()
	list, err := dialect.Encode(d, e, bytes.TrimSpace(e.AppendLine(nil)), to, func() (*event.Session, error) { return event.NewSession("s"), nil })
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// What a message has for auditors alone no client sees, be it a sub-agent's.
func TestNoDialectShowsInternalParts(t *testing.T) {
	hush := event.TextPart("hush")
	hush.Internal = true
	for _, d := range append([]dialect.Dialect{mcp.Dialect{ID: "1", Token: "1"}}, dialects...) {
		for _, agent := range []string{"", "summarizer"} {
			sc, _ := scenarios.Named("text")
			log := sc.Log()
			for i := range log {
				if log[i].Type == event.MessageCompleted {
					log[i].Data, log[i].Agent = event.Encode(event.MessageCompletedData{MessageID: "m", Role: event.RoleAssistant, Parts: []event.Part{hush}}), agent
				}
			}
			for _, m := range dialecttest.Encode(t, d, log, nil) {
				if bytes.Contains(m.Data, []byte("hush")) {
					t.Errorf("%s, of %q: %s", d.Name(), agent, m.Data)
				}
			}
		}
	}
}

// sayers are all dialects, the settings that cost more among them, each with what
// encodes a delta of a text that has begun.
func sayers(t testing.TB) map[string]func() []dialect.Message {
	t.Helper()
	all := map[string]func() []dialect.Message{}
	more := []dialect.Dialect{openai.Chat{}, rpc.Dialect{Sentences: true}, mcp.Dialect{ID: "1", Token: "1"}}
	for i, d := range append(more, dialects...) {
		name := d.Name()
		if i < len(more) {
			name += "+"
		}
		all[name] = sayer(t, d)
	}
	return all
}

func sayer(t testing.TB, d dialect.Dialect) func() []dialect.Message {
	t.Helper()
	sc, _ := scenarios.Named("text")
	log := sc.Log()
	at := slices.IndexFunc(log, func(e event.Event) bool { return e.Type == event.TextDelta }) + 1
	delta := log[at]
	line := bytes.TrimSpace(delta.AppendLine(nil))
	if f, ok := d.(dialect.Following); ok {
		x := f.Begin()
		for _, e := range log[:at] {
			x.Next(e, bytes.TrimSpace(e.AppendLine(nil)), dialect.Client)
		}
		return func() []dialect.Message { return x.Next(delta, line, dialect.Client) }
	}
	fold, err := scenarios.Fold(log[:at])
	if err != nil {
		t.Fatal(err)
	}
	before := func() (*event.Session, error) { return fold, nil }
	return func() []dialect.Message {
		list, _ := dialect.Encode(d, delta, line, dialect.Client, before)
		return list
	}
}

// A delta costs no dialect more than 4 allocations; how long it takes the benchmark
// says.
func TestATextDeltaIsCheapInEveryDialect(t *testing.T) {
	for name, say := range sayers(t) {
		if n := testing.AllocsPerRun(100, func() { say() }); n > 4 {
			t.Errorf("%s: %v allocations for a text delta", name, n)
		}
	}
}

func BenchmarkTextDelta(b *testing.B) {
	all := sayers(b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				all[name]()
			}
		})
	}
}

// A conversation that was stored and read back is told as the one that was folded
// from its events: which of them an edge has depends on what it happens to read.
func TestEveryDialectTellsAStoredFoldAlike(t *testing.T) {
	for _, sc := range scenarios.All() {
		fold := event.NewSession(scenarios.SessionID)
		for _, e := range sc.Log() {
			stored := fold.Clone()
			for _, d := range dialects {
				for _, to := range []dialect.Audience{dialect.Client, dialect.Auditor} {
					if got, want := told(d, stored, e, to), told(d, fold, e, to); got != want {
						t.Errorf("%s, %s before %d: %s\nwant %s", sc.Name, d.Name(), e.Seq, got, want)
					}
				}
			}
			if err := fold.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// told is what a dialect says of a session, and of the event that follows it if it
// needs the session for that.
func told(d dialect.Dialect, s *event.Session, e event.Event, to dialect.Audience) string {
	all := d.Snapshot(dialect.Reset, s, to)
	if f, ok := d.(dialect.Folding); ok && f.Folds(e) {
		all = append(all, f.EventAfter(s, e, bytes.TrimSpace(e.AppendLine(nil)), to)...)
	}
	return said(all)
}

func said(list []dialect.Message) string {
	var b strings.Builder
	for _, m := range list {
		b.WriteString(m.Event + " " + string(m.Data) + "\n")
	}
	return b.String()
}
