package rpc_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/rpc"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func ofRun(e event.Event) bool { return e.RunID == scenarios.RunID }

func TestTranscripts(t *testing.T) {
	t.Run("token", func(t *testing.T) { dialecttest.Run(t, rpc.Dialect{}, dialecttest.Options{}) })
	t.Run("sentence", func(t *testing.T) {
		dialecttest.Run(t, rpc.Dialect{Sentences: true}, dialecttest.Options{Variant: "sentence", Mine: ofRun})
	})
}

type line struct {
	Method string
	Params struct {
		Type      string
		EventID   string `json:"event_id"`
		TraceID   string `json:"trace_id"`
		SessionID string `json:"session_id"`
		CreatedAt string `json:"created_at"`
		MessageID string `json:"message_id"`
		Delta     string
		Text      string
	}
}

// Every line says what every line must say, and its event_id is its cursor.
func TestEveryLineNamesItself(t *testing.T) {
	for _, d := range []rpc.Dialect{{}, {Sentences: true}} {
		for _, sc := range scenarios.All() {
			for _, m := range dialecttest.Encode(t, d, sc.Log(), nil) {
				var l line
				if err := json.Unmarshal(m.Data, &l); err != nil {
					t.Fatal(err)
				}
				p := l.Params
				if l.Method != "agent.event" || p.Type == "" || p.TraceID != scenarios.TraceID || p.SessionID != scenarios.SessionID || p.CreatedAt == "" {
					t.Errorf("%s: %s", sc.Name, m.Data)
				}
				if rpc.Cursor(p.EventID) != m.ID {
					t.Errorf("%s: event_id %s stands at %s", sc.Name, p.EventID, m.ID)
				}
			}
		}
	}
}

// By sentence or by token, the text is the same.
func TestSentencesLoseNothing(t *testing.T) {
	texts := func(d rpc.Dialect, sc scenarios.Scenario) (deltas, whole map[string]string) {
		deltas, whole = map[string]string{}, map[string]string{}
		for _, m := range dialecttest.Encode(t, d, sc.Log(), ofRun) {
			var l line
			if err := json.Unmarshal(m.Data, &l); err != nil {
				t.Fatal(err)
			}
			switch l.Params.Type {
			case "message_before":
				deltas[l.Params.MessageID] += l.Params.Delta
			case "message_discarded":
				delete(deltas, l.Params.MessageID)
				delete(whole, l.Params.MessageID) // of an agent that lives elsewhere
			case "message_after":
				whole[l.Params.MessageID] = l.Params.Text
			}
		}
		return deltas, whole
	}
	for _, sc := range scenarios.All() {
		for _, d := range []rpc.Dialect{{}, {Sentences: true}} {
			deltas, whole := texts(d, sc)
			for id, text := range whole {
				if deltas[id] != text {
					t.Errorf("%s, %+v: message %s: deltas %q, whole %q", sc.Name, d, id, deltas[id], text)
				}
			}
		}
	}
}

// Sentences come as they end, not with the message.
func TestSentences(t *testing.T) {
	for text, want := range map[string]string{
		"It is 3.14 now. \"Really?\" she said. No": "It is 3.14 now. |\"Really?\" |she said. ",
		"你好。再见！好":                                  "你好。|再见！",
		"One\n\nTwo":                               "One\n|\n",
		"no end":                                   "",
		"Wait... what?! Yes.":                      "Wait... |what?! ",
	} {
		fold := event.NewSession("s")
		seq := event.Seq(0)
		var got []string
		add := func(e event.Event) {
			seq++
			e.Seq, e.ID, e.SessionID, e.RunID = seq, "s-"+seq.String(), "s", "r"
			list, err := dialect.Encode(rpc.Dialect{Sentences: true}, e, nil, dialect.Client, func() (*event.Session, error) { return fold, nil })
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				var l line
				_ = json.Unmarshal(m.Data, &l)
				if l.Params.Type == "message_before" {
					got = append(got, l.Params.Delta)
				}
			}
			if err := fold.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		add(event.New(event.RunStarted, event.RunStartedData{Agent: "a", Attempt: 1}))
		add(event.New(event.MessageStarted, event.MessageStartedData{MessageID: "m", Role: event.RoleAssistant}))
		for _, r := range text {
			add(event.New(event.TextDelta, event.TextDeltaData{MessageID: "m", Delta: string(r)}))
		}
		if joined := strings.Join(got, "|"); joined != want {
			t.Errorf("%q: %q, want %q", text, joined, want)
		}
	}
}

func TestHeartbeat(t *testing.T) {
	d := rpc.Dialect{Session: "s-1", Run: "r", Trace: "t"}
	m := d.Heartbeat(dialect.Heartbeat{Status: event.Running, ElapsedMS: 7, Head: 9, At: "5"})
	if want := `"type":"heartbeat","event_id":"s-1-5","trace_id":"t","session_id":"s-1","run_id":"r","created_at":`; !bytes.Contains(m[0].Data, []byte(want)) {
		t.Errorf("%s", m[0].Data)
	}
}
