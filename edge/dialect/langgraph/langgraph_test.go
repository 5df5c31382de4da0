package langgraph_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/langgraph"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func TestTranscripts(t *testing.T) {
	o := dialecttest.Options{Plain: true} // tuples are arrays
	t.Run("usual", func(t *testing.T) { dialecttest.Run(t, langgraph.Dialect{}, o) })
}

func TestModeMessages(t *testing.T) {
	d := langgraph.Dialect{Modes: langgraph.Messages}
	sc, _ := scenarios.Named("tools")
	names := map[string]int{}
	var last []message
	for _, m := range dialecttest.Encode(t, d, sc.Log(), nil) {
		names[m.Event]++
		if m.Event == "messages/partial" || m.Event == "messages/complete" {
			last = nil
			if err := json.Unmarshal(m.Data, &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if names["messages/metadata"] != 2 || names["messages/partial"] != 4 || names["messages/complete"] != 4 || names["values"]+names["messages"]+names["custom"] > 0 {
		t.Errorf("%v", names)
	}
	if len(last) != 1 || last[0].text() != "Sunny, and you are free." {
		t.Errorf("the last message is %+v", last)
	}
}

// Only what was asked for is told, and in every mode a run begins and ends.
func TestModesAreWhatWasAskedFor(t *testing.T) {
	events := map[langgraph.Modes]string{langgraph.Values: "values", langgraph.Tuples: "messages", langgraph.Updates: "updates",
		langgraph.Custom: "custom", langgraph.Tools: "tools", langgraph.Events: "events"}
	sc, _ := scenarios.Named("tools")
	for mode, name := range events {
		var got []string
		for _, m := range dialecttest.Encode(t, langgraph.Dialect{Modes: mode, As: "mine"}, sc.Log(), nil) {
			got = append(got, m.Event)
			if (m.Event == "metadata" || m.Event == "end") && !bytes.Contains(m.Data, []byte(`"run_id":"mine"`)) {
				t.Errorf("%s: %s", name, m.Data)
			}
		}
		if got[0] != "metadata" || got[len(got)-1] != "end" || !slices.Contains(got, name) {
			t.Errorf("%s: %q", name, got)
		}
		if slices.ContainsFunc(got, func(e string) bool { return e != "metadata" && e != "end" && e != name }) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

type message struct {
	Type       string
	ID         string
	Content    json.RawMessage
	ToolCallID string `json:"tool_call_id"`
	Status     string
	ToolCalls  []struct {
		ID, Name string
		Args     json.RawMessage
	} `json:"tool_calls"`
	Invalid []struct{ ID, Name, Args string } `json:"invalid_tool_calls"`
	Chunks  []struct {
		ID, Name, Args string
		Index          int
	} `json:"tool_call_chunks"`
}

func (m message) text() string {
	var s string
	_ = json.Unmarshal(m.Content, &s)
	return s
}

// A list is what a client makes of chunks: texts and arguments by message.
type list struct {
	order []string
	texts map[string]string
	args  map[string]map[int]string
}

func (l *list) add(m message) {
	if m.Type == "remove" {
		delete(l.texts, m.ID)
		delete(l.args, m.ID)
		l.order = slices.DeleteFunc(l.order, func(id string) bool { return id == m.ID })
		return
	}
	if _, ok := l.texts[m.ID]; !ok {
		l.order = append(l.order, m.ID)
		l.args[m.ID] = map[int]string{}
	}
	l.texts[m.ID] += m.text()
	for _, c := range m.Chunks {
		l.args[m.ID][c.Index] += c.Args
	}
}

// Who reads chunks and who reads values ends with the same conversation.
func TestChunksMakeTheValues(t *testing.T) {
	for _, sc := range scenarios.All() {
		if sc.LogOnly {
			continue
		}
		l := &list{texts: map[string]string{}, args: map[string]map[int]string{}}
		var state struct{ Messages []message }
		for _, m := range dialecttest.Encode(t, langgraph.Dialect{}, sc.Log(), nil) {
			switch m.Event {
			case "messages":
				var tuple []json.RawMessage
				var of message
				if err := json.Unmarshal(m.Data, &tuple); err != nil || len(tuple) != 2 {
					t.Fatalf("%s: %s", sc.Name, m.Data)
				}
				if err := json.Unmarshal(tuple[0], &of); err != nil {
					t.Fatal(err)
				}
				l.add(of)
			case "values":
				state.Messages = nil
				if err := json.Unmarshal(m.Data, &state); err != nil {
					t.Fatal(err)
				}
			}
		}
		compare(t, sc, l, state.Messages)
	}
}

func compare(t *testing.T, sc scenarios.Scenario, l *list, want []message) {
	t.Helper()
	var ids []string
	for _, m := range want {
		if m.Type == "human" {
			continue
		}
		if _, told := l.texts[m.ID]; !told && m.text() == "" && len(m.ToolCalls) == 0 {
			continue // an empty message has no chunks
		}
		ids = append(ids, m.ID)
		if l.texts[m.ID] != m.text() {
			t.Errorf("%s: message %s: chunks %q, values %q", sc.Name, m.ID, l.texts[m.ID], m.text())
		}
		for i, c := range m.ToolCalls {
			if got := l.args[m.ID][i]; got != string(c.Args) && (got != "" || string(c.Args) != "{}") {
				t.Errorf("%s: call %s: chunks %q, values %s", sc.Name, c.ID, got, c.Args)
			}
		}
		if len(l.args[m.ID]) != len(m.ToolCalls)+len(m.Invalid) {
			t.Errorf("%s: message %s: %d calls by chunks, %d by values", sc.Name, m.ID, len(l.args[m.ID]), len(m.ToolCalls)+len(m.Invalid))
		}
	}
	// Results come as they are there; in the state they stand in the order of the calls.
	slices.Sort(ids)
	slices.Sort(l.order)
	if !slices.Equal(ids, l.order) {
		t.Errorf("%s: chunks made %q, values %q", sc.Name, l.order, ids)
	}
}

// What is no JSON object stays what the model has written.
func TestBadArguments(t *testing.T) {
	s := event.NewSession("s")
	seq := event.Seq(0)
	add := func(typ event.Type, data any) {
		seq++
		e := event.New(typ, data)
		e.Seq, e.ID, e.SessionID, e.RunID = seq, "s-"+seq.String(), "s", "r"
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	add(event.RunStarted, event.RunStartedData{Agent: "a", Attempt: 1})
	add(event.MessageStarted, event.MessageStartedData{MessageID: "m", Role: event.RoleAssistant})
	add(event.ToolStarted, event.ToolStartedData{CallID: "c", Name: "n", MessageID: "m"})
	add(event.ToolArgs, event.ToolArgsData{CallID: "c", Name: "n", Args: `{"a":`})
	add(event.MessageCompleted, event.MessageCompletedData{MessageID: "m", Role: event.RoleAssistant, Parts: []event.Part{{Type: event.PartToolCall, CallID: "c"}}})
	var got struct{ Messages []message }
	if err := json.Unmarshal(langgraph.State(s), &got); err != nil {
		t.Fatal(err)
	}
	if m := got.Messages[0]; len(m.ToolCalls) != 0 || len(m.Invalid) != 1 || m.Invalid[0].Args != `{"a":` {
		t.Errorf("%+v", m)
	}
}

// A run that is out of budget waits for more of it, as for anything else.
func TestABudgetIsAnInterrupt(t *testing.T) {
	sc, _ := scenarios.Named("text")
	log := sc.Log()[:5] // until it runs
	at := event.At(log[4].Time.Add(time.Hour))
	for _, data := range []any{event.BudgetExceededData{Kind: "tokens", Limit: 10, Used: 11}, event.RunStatusData{Status: event.WaitingApproval, Previous: event.Running, Reason: "budget", ExpiresAt: &at}} {
		e := event.New(event.BudgetExceeded, data)
		if _, parks := data.(event.RunStatusData); parks {
			e.Type = event.RunStatus
		}
		e.Seq, e.SessionID, e.RunID = event.Seq(len(log)+1), log[0].SessionID, log[2].RunID
		e.ID = e.SessionID + "-" + e.Seq.String()
		log = append(log, e)
	}
	list := dialecttest.Encode(t, langgraph.Dialect{Modes: langgraph.Values}, log, nil)
	if n := len(list); n < 2 || list[n-1].Event != "end" || !strings.Contains(string(list[n-2].Data), `"__interrupt__":[{"id":"run_1","value":{"type":"budget","kind":"tokens","limit":10,"used":11}}]`) {
		t.Errorf("%s", list[len(list)-2].Data)
	}
}

// A state of the agent's cannot take the place of the messages, nor of what is
// waited for.
func TestStateBesideMessages(t *testing.T) {
	s := event.NewSession("s")
	for state, want := range map[string]string{
		`{"messages":1,"__interrupt__":[],"n":9007199254740993}`: `{"messages":[],"n":9007199254740993}`,
		`[1]`: `{"messages":[],"state":[1]}`,
		``:    `{"messages":[]}`,
	} {
		s.State = json.RawMessage(state)
		if got := string(langgraph.State(s)); got != want {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
}

func TestSnapshotTellsHowItStands(t *testing.T) {
	ends := map[event.Type]string{event.RunCompleted: "end", event.RunFailed: "error", event.RunCancelled: "error"}
	for _, sc := range scenarios.All() {
		fold, err := scenarios.Fold(sc.Log())
		if err != nil {
			t.Fatal(err)
		}
		list := langgraph.Dialect{Modes: langgraph.Tuples}.Snapshot(dialect.Reset, fold, dialect.Client)
		if list[0].Event != "metadata" || list[1].Event != "values" || list[len(list)-1].Event != ends[sc.Ends] {
			t.Errorf("%s: %+v", sc.Name, list)
		}
	}
}
