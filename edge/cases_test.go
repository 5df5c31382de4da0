package edge_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

const ofScenario = "/v1/sessions/" + scenarios.SessionID + "/events?follow=false&dialect="

// told are the messages with ids that a dialect has of the session's history after
// a position.
func (e *edgeNode) told(dialect, after string) []message {
	e.t.Helper()
	var header []string
	if after != "" {
		header = []string{"Last-Event-ID", after}
	}
	var list []message
	for _, m := range e.listen(ofScenario+dialect, header...).bare() {
		if m.id != "" && m.event != "position" && !strings.Contains(m.data, `"type":"position"`) {
			list = append(list, m)
		}
	}
	return list
}

// Deltas of one instant, in one frame, are told apart by the log and not by a
// clock: whatever the dialect, whoever comes back gets what follows, once.
func TestEveryDialectResumesWithinOneInstant(t *testing.T) {
	s := newSite(t)
	one, other := s.edge(edge.Options{}), s.edge(edge.Options{Stream: stream.Options{RingEvents: 8, PageBytes: 1000}})
	w := s.scribe("default", scenarios.SessionID)
	now := event.At(time.Now())
	list := []event.Event{of("r", event.RunStarted, event.RunStartedData{Agent: "demo", Attempt: 1}),
		of("r", event.MessageStarted, event.MessageStartedData{MessageID: "m", Role: event.RoleAssistant})}
	text := ""
	for i := range 50 {
		word := fmt.Sprintf("word%d. ", i)
		text += word
		list = append(list, of("r", event.TextDelta, event.TextDeltaData{MessageID: "m", Delta: word}))
	}
	parts := []event.Part{event.TextPart(text)}
	list = append(list, of("r", event.MessageCompleted, event.MessageCompletedData{MessageID: "m", Role: event.RoleAssistant, Parts: parts, SHA256: event.TextHash(parts)}),
		of("r", event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop, Output: event.RunOutput{MessageID: "m"}}))
	for i := range list {
		list[i].Time = now
	}
	if _, err := w.w.Append(list...); err != nil || w.w.Sync(t.Context()) != nil {
		t.Fatal(err)
	}
	for _, name := range edge.DialectNames() {
		all := one.told(name, "")
		if len(all) < 2 {
			t.Errorf("%s: %d messages", name, len(all))
			continue
		}
		for i, m := range all {
			if rest := other.told(name, m.id); !slices.Equal(rest, all[i+1:]) {
				t.Errorf("%s after %s: %d messages, want %d", name, m.id, len(rest), len(all)-i-1)
			}
		}
	}
}

// Odd cursors are answered alike in every dialect: from the start, 400, or 409
// with the head.
func TestEveryDialectAnswersOddCursors(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", scenarios.SessionID).play("text")
	head := scenarioHead(t, "text")
	for _, name := range edge.DialectNames() {
		all := e.told(name, "")
		if again := e.told(name, "0"); !slices.Equal(again, all) || len(all) == 0 {
			t.Errorf("%s after 0: %d messages, want %d", name, len(again), len(all))
		}
		for _, bad := range []string{"-1", "abc", "18446744073709551616", "1e3"} {
			if p := as[problem](t, e.get(400, ofScenario+name, "Last-Event-ID", bad)); p.Code != "bad_cursor" {
				t.Errorf("%s after %s: %+v", name, bad, p)
			}
		}
		ahead := (head + 1000).String()
		if p := as[problem](t, e.get(409, ofScenario+name, "Last-Event-ID", ahead)); p.Code != "cursor_ahead" || p.Head != head {
			t.Errorf("%s after %s: %+v", name, ahead, p)
		}
	}
}

func messagesText(list []message) string {
	var b strings.Builder
	for _, m := range list {
		b.WriteString(m.event + m.data)
	}
	return b.String()
}

func scenarioHead(t *testing.T, name string) event.Seq {
	t.Helper()
	sc, ok := scenarios.Named(name)
	if !ok {
		t.Fatalf("no scenario %s", name)
	}
	return event.Seq(len(sc.Log()))
}

// A position that is no longer kept is never answered by silence: every dialect
// says what it has to say of the fold, and goes on from there.
func TestEveryDialectResets(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", scenarios.SessionID)
	sc, _ := scenarios.Named("tools")
	log := sc.Log()
	head := event.Seq(len(log))
	w.write(log[:head-2]...)
	k := eventlog.Key{Tenant: "default", Session: scenarios.SessionID}
	fold, at, err := s.log.Load(t.Context(), k)
	if err == nil {
		err = s.log.SaveSnapshot(t.Context(), k, fold.Encode(), at.Seq)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.write(log[head-2:]...)
	s.purge(scenarios.SessionID, head-1)
	e := s.edge(edge.Options{})
	for _, name := range edge.DialectNames() {
		all := e.listen(ofScenario+name, "Last-Event-ID", "1").bare()
		if n := len(all); n == 0 || all[n-1].id != head.String() {
			t.Errorf("%s says %v", name, all)
		}
		if said := messagesText(all); !strings.Contains(said, "and you are free") && !strings.Contains(said, "reset") {
			t.Errorf("%s does not say what became of the run: %s", name, said)
		}
	}
}

// A cursor means the same position in every dialect and with every filter: what
// one has seen, another does not tell again, and nothing is left out.
func TestEveryCursorWorksInEveryDialect(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", scenarios.SessionID).play("tools")
	names := edge.DialectNames()
	whole := map[string][]message{}
	for _, name := range names {
		whole[name] = e.told(name, "")
	}
	whole["native&include=internal"] = e.told("native&include=internal", "")
	names = append(names, "native&include=internal")
	for from, all := range whole {
		for i := 1; i < len(all); i += 1 + len(all)/4 {
			at := all[i].id
			for _, name := range names {
				want := whole[name][:0:0]
				for _, m := range whole[name] {
					if after(t, m.id, at, name == from || expands(t, whole[name], at)) {
						want = append(want, m)
					}
				}
				if got := e.told(name, at); !slices.Equal(got, want) {
					t.Errorf("%s of %s in %s: %d messages, want %d", at, from, name, len(got), len(want))
				}
			}
		}
	}
}

// expands reports whether a dialect has so many messages of an event that it takes
// a cursor inside it for its own: nothing in the cursor says whose it is.
func expands(t *testing.T, list []message, cursor string) bool {
	t.Helper()
	at, in := position(t, cursor)
	n := 0
	for _, m := range list {
		if seq, _ := position(t, m.id); seq == at {
			n++
		}
	}
	return in >= 0 && n > in+1
}

// after reports whether an id lies beyond a cursor. One inside an event stands, in
// another dialect, before that event.
func after(t *testing.T, id, cursor string, own bool) bool {
	t.Helper()
	seq, sub := position(t, id)
	at, in := position(t, cursor)
	switch {
	case in < 0:
		return seq > at
	case own:
		return seq > at || seq == at && (sub < 0 || sub > in)
	}
	return seq >= at
}

func position(t *testing.T, id string) (seq, sub int) {
	t.Helper()
	whole, part, inside := strings.Cut(id, ".")
	sub = -1
	if _, err := fmt.Sscan(whole, &seq); err != nil {
		t.Fatal(id)
	}
	if inside {
		if _, err := fmt.Sscan(part, &sub); err != nil {
			t.Fatal(id)
		}
	}
	return seq, sub
}

// Text that breaks careless parsers comes through every dialect over every
// transport as it was, in frames that no reader of lines can take apart.
func TestEveryDialectFramesOddText(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", scenarios.SessionID).play("unicode")
	for _, name := range edge.DialectNames() {
		messages := e.listen(ofScenario + name).bare()
		sse := make([]string, len(messages))
		for i, m := range messages {
			sse[i] = m.data
		}
		want := textsIn(t, sse)
		for _, odd := range scenarios.Oddities {
			if !strings.Contains(want, odd) {
				t.Errorf("%s: %q is not there", name, odd)
			}
		}
		for i, line := range e.lines(ofScenario + name) {
			m := messages[min(i, len(messages)-1)]
			if line != m.data && line != `{"type":"`+m.event+`",`+m.data[1:] {
				t.Errorf("%s: line %d is %.200q, and the server-sent event %.200q", name, i, line, m.data)
			}
		}
		if got := textsIn(t, e.socketData(ofScenario+name)); got != want {
			t.Errorf("%s: a WebSocket tells another text than server-sent events: %s", name, difference(got, want))
		}
	}
}

func difference(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%d and %d bytes, from %d on %.60q and %.60q", len(got), len(want), i, got[i:], want[i:])
}

// lines are the lines of a stream, but for signs of life.
func (e *edgeNode) lines(path string) []string {
	e.t.Helper()
	body := strings.TrimSuffix(string(wantStatus(e.t, e.do("GET", path, "", "Accept", "application/x-ndjson"), 200)), "\n")
	return slices.DeleteFunc(strings.Split(body, "\n"), func(line string) bool { return line == `{"type":"ping"}` })
}

// socketData is the data of a WebSocket's messages.
func (e *edgeNode) socketData(path string) []string {
	e.t.Helper()
	conn, _, err := websocket.Dial(e.t.Context(), e.url+path+"&after=0", &websocket.DialOptions{Subprotocols: []string{"runlog.v1"}})
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.CloseNow() //nolint:errcheck // it is over
	conn.SetReadLimit(4 << 20)
	var list []string
	for {
		_, raw, err := conn.Read(e.t.Context())
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return list
		}
		if err != nil {
			e.t.Fatal(err)
		}
		list = append(list, string(as[struct{ Data json.RawMessage }](e.t, raw).Data))
	}
}

// textsIn joins the strings that messages hold, in their order; what the protocol
// ends with is no text.
func textsIn(t *testing.T, list []string) string {
	t.Helper()
	var b strings.Builder
	for _, data := range list {
		if strings.ContainsAny(data, "\r\n\u2028\u2029") {
			t.Errorf("a line end in %q", data)
		}
		if strings.Trim(data, `"`) == "[DONE]" {
			continue
		}
		dec := json.NewDecoder(strings.NewReader(data))
		dec.UseNumber()
		for {
			token, err := dec.Token()
			if err != nil {
				break
			}
			if text, ok := token.(string); ok {
				b.WriteString(text)
			}
		}
	}
	return b.String()
}
