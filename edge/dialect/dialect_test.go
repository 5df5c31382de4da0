package dialect_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/dialect/plain"
	"github.com/runlog-dev/runlog/event"
)

var all = []dialect.Dialect{native.Dialect{}, plain.Dialect{}}

// Whatever the log holds, no dialect panics, breaks a line, or lets a client see
// what is internal.
func TestEveryDialectTakesEveryType(t *testing.T) {
	for _, d := range all {
		for _, kind := range append([]event.Type{"something.new"}, event.Types...) {
			for _, data := range []string{`{}`, `{"message_id":1,"parts":"x","args":[]}`, `{"message_id":"m","delta":"a\n\u2028b","parts":[{"type":"text","text":"hush","internal":true}],"args":"{","content":null}`} {
				e := event.New(kind, json.RawMessage(data))
				e.Seq, e.SessionID, e.ID, e.RunID = 1, "s", "s-1", "r"
				line := bytes.TrimSpace(e.AppendLine(nil))
				for _, m := range d.Event(e, line, dialect.Client) {
					if bytes.ContainsAny(m.Data, "\n\r") || !json.Valid(m.Data) || strings.ContainsAny(m.Event, "\n\r") {
						t.Errorf("%s %s: %s", d.Name(), kind, m.Data)
					}
					if bytes.Contains(m.Data, []byte("hush")) && kind == event.MessageCompleted {
						t.Errorf("%s shows an internal part: %s", d.Name(), m.Data)
					}
				}
				e.Internal = true
				if got := d.Event(e, line, dialect.Client); len(got) != 0 {
					t.Errorf("%s shows an internal %s: %s", d.Name(), kind, got[0].Data)
				}
				_ = d.Event(e, line, dialect.Auditor)
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

// The native dialect hands on stored lines byte for byte.
func TestNativeKeepsTheStoredLine(t *testing.T) {
	line := []byte(`{"v":1,"seq":7,"id":"s-7","type":"x.y","time":"2026-11-30T12:00:00.000001Z","session_id":"s","later":true,"data":{"n":9007199254740993, "b":1.0}}`)
	e, err := event.Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	got := native.Dialect{}.Event(e, line, dialect.Client)
	if len(got) != 1 || !bytes.Equal(got[0].Data, line) || got[0].Event != "x.y" {
		t.Errorf("%+v", got)
	}
}
