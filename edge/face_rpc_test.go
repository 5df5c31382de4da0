package edge_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// An rpcLine is a line of a stream, or an answer.
type rpcLine struct {
	ID     any
	Method string
	Params struct {
		Type      string
		EventID   string `json:"event_id"`
		TraceID   string `json:"trace_id"`
		SessionID string `json:"session_id"`
		RunID     string `json:"run_id"`
		CreatedAt string `json:"created_at"`
		Delta     string
		Attach    struct {
			RunID string `json:"run_id"`
		}
	}
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    map[string]any
	}
}

func (e *edgeNode) rpc(body string, header ...string) *http.Response {
	e.t.Helper()
	return e.do("POST", "/rpc", body, header...)
}

func call(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
}

// lines reads a stream to its end.
func lines(t testing.TB, resp *http.Response) (all []rpcLine) {
	t.Helper()
	if kind := resp.Header.Get("Content-Type"); kind != "application/x-ndjson" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", kind, body)
	}
	rd := bufio.NewReader(resp.Body)
	for {
		line, err := rd.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, as[rpcLine](t, line))
	}
}

func types(list []rpcLine) string {
	var names []string
	for _, l := range list {
		switch {
		case l.Params.Type == "heartbeat":
		case l.Method != "":
			names = append(names, l.Params.Type)
		case l.Error != nil:
			names = append(names, fmt.Sprint("error ", l.Error.Code))
		default:
			names = append(names, "result")
		}
	}
	return strings.Join(names, " ")
}

func TestRPCInvokesAndAttaches(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	whole := lines(t, e.rpc(call(7, "agent.invoke", `{"session_id":"s","input_text":"One. Two","trace_id":"t1","config":{"aggregate":"token"}}`)))
	// The worker of these tests writes everything as an answer to the command.
	want := "session_started event event message_before event session_finished result"
	if got := types(whole); got != want {
		t.Fatalf("%s", got)
	}
	for _, l := range whole[:len(whole)-1] {
		if l.Params.EventID == "" || l.Params.TraceID != "t1" || l.Params.SessionID != "s" || l.Params.CreatedAt == "" {
			t.Errorf("%+v", l.Params)
		}
	}
	last := whole[len(whole)-1]
	if st := as[run](t, last.Result); last.ID != 7.0 || st.Status != event.Completed || st.TraceID != "t1" {
		t.Errorf("%+v", last)
	}
	runID := whole[0].Params.RunID
	for i, l := range whole[:len(whole)-1] {
		rest := lines(t, e.rpc(call(8, "agent.attach", `{"run_id":"`+runID+`","after":"`+l.Params.EventID+`"}`)))
		if got := types(rest); got != types(whole[i+1:]) {
			t.Errorf("after %s: %s", l.Params.EventID, got)
		}
	}
	for _, params := range []string{`{"session_id":"s"}`, `{"session_id":"s","trace_id":"t1"}`} {
		if got := types(lines(t, e.rpc(call(9, "agent.attach", params)))); got != want {
			t.Errorf("%s: %s", params, got)
		}
	}
	text := ""
	var pieces int
	for _, l := range lines(t, e.rpc(call(9, "agent.attach", `{"run_id":"`+runID+`","config":{"aggregate":"sentence"}}`))) {
		if l.Params.Type == "message_before" {
			pieces++
			text += l.Params.Delta
		}
	}
	if text != "you said: One. Two" || pieces != 2 {
		t.Errorf("%q in %d pieces", text, pieces)
	}
}

// Of a trace one run is under way at most; whoever comes second is told which.
func TestRPCSecondInvokeOfALiveTrace(t *testing.T) {
	s := newSite(t)
	e, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	w := s.work()
	first := as[rpcLine](t, wantStatus(t, e.rpc(call(1, "agent.invoke", `{"session_id":"s","input_text":"hold","trace_id":"t","stream":false}`)), 200))
	runID := as[run](t, first.Result).RunID
	for i, params := range []string{
		`{"session_id":"s","input_text":"again","trace_id":"t"}`,
		`{"session_id":"another","input_text":"again","trace_id":"t"}`,
		`{"input_text":"again","trace_id":"t","run_id":"mine"}`,
	} {
		at := []*edgeNode{e, other}[i%2]
		got := lines(t, at.rpc(call(2, "agent.invoke", params)))
		if types(got) != "error error -32009" || got[0].Params.Attach.RunID != runID || got[0].Params.TraceID != "t" || got[0].Params.CreatedAt == "" {
			t.Errorf("%s: %s %+v", params, types(got), got)
		}
	}
	// At once, on two edges: one of them runs.
	ran := make(chan string, 8)
	together(8, func(i int) {
		at := []*edgeNode{e, other}[i%2]
		got := as[rpcLine](t, wantStatus(t, at.rpc(call(3, "agent.invoke", `{"input_text":"hold","trace_id":"t2","stream":false}`)), 200))
		if got.Error == nil {
			ran <- as[run](t, got.Result).RunID
		} else if got.Error.Code != -32009 {
			t.Errorf("%+v", got.Error)
		}
	})
	if len(ran) != 1 {
		t.Errorf("%d runs of one trace", len(ran))
	}
	<-w.invokes
	<-w.invokes
	if got := as[rpcLine](t, wantStatus(t, e.rpc(call(4, "agent.cancel", `{"run_id":"`+runID+`","wait":true,"reason":"x"}`)), 200)); as[run](t, got.Result).Status != event.Cancelled {
		t.Errorf("%+v", got)
	}
	// It is over: the trace may go on.
	got := lines(t, other.rpc(call(5, "agent.invoke", `{"session_id":"s","input_text":"more","trace_id":"t","run_id":"next"}`)))
	if got[0].Params.RunID != "next" || as[run](t, got[len(got)-1].Result).Status != event.Completed {
		t.Errorf("%+v", got)
	}
	// The same run asked for again is the same run.
	again := lines(t, e.rpc(call(6, "agent.invoke", `{"session_id":"s","input_text":"more","trace_id":"t","run_id":"next"}`)))
	if types(again) != types(got) || again[0].Params.EventID != got[0].Params.EventID {
		t.Errorf("%s", types(again))
	}
}

func TestRPCSpeaksJSONRPC(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.settling()
	w := s.work()
	for body, code := range map[string]int{
		`{`: -32700, `"x`: -32700, ``: -32700, `[]`: -32600, `7`: -32600, `{}`: -32600, `{"jsonrpc":"1.0","id":1,"method":"agent.list"}`: -32600,
		`{"jsonrpc":"2.0","id":1}`: -32600, `{"jsonrpc":"2.0","id":{},"method":"agent.list"}`: -32600, `{"jsonrpc":"2.0","id":true,"method":"agent.list"}`: -32600,
		`{"jsonrpc":"2.0","id":1,"method":7}`: -32600, `{"jsonrpc":"2.0","id":1,"method":"agent.list","params":"x"}`: -32600,
		call(1, "agent.fly", `{}`):                                                       -32601,
		call(1, "agent.invoke", `{}`):                                                    -32602,
		call(1, "agent.invoke", `["hi"]`):                                                -32602,
		call(1, "agent.invoke", `{"input_text":"x","tempo":1}`):                          -32602,
		call(1, "agent.invoke", `{"input_text":"x","config":{"aggregate":"paragraph"}}`): -32602,
		call(1, "agent.invoke", `{"input_text":"x","agent":"none"}`):                     -32004,
		call(1, "agent.attach", `{}`):                                                    -32602,
		call(1, "agent.attach", `{"run_id":"none"}`):                                     -32004,
		call(1, "agent.attach", `{"run_id":"run_f","after":"ses_settle-999"}`):           -32009,
		call(1, "agent.attach", `{"run_id":"run_f","after":"x"}`):                        -32602,
		call(1, "agent.cancel", `{"run_id":7}`):                                          -32602,
		call(1, "agent.cancel", `{"run_id":"none"}`):                                     -32004,
		call(1, "agent.approve", `{"run_id":"run_w","call_id":"given"}`):                 -32009,
		call(1, "agent.resume", `{"run_id":"run_w"}`):                                    -32009,
		call(1, "session.get", `{"session_id":"none"}`):                                  -32004,
	} {
		got := as[rpcLine](t, wantStatus(t, e.rpc(body), 200))
		if got.Error == nil || got.Error.Code != code || got.Error.Message == "" {
			t.Errorf("%s: %+v", body, got.Error)
		}
	}
	// A notification is obeyed and not answered; a batch has no answer to it.
	if body := wantStatus(t, e.rpc(`{"jsonrpc":"2.0","method":"agent.invoke","params":{"input_text":"quietly"}}`), 204); len(body) > 0 {
		t.Errorf("%s", body)
	}
	<-w.invokes
	wantStatus(t, e.rpc(`[{"jsonrpc":"2.0","method":"nobody.hears"},{"jsonrpc":"2.0","method":"agent.list"}]`), 204)
	batch := as[[]rpcLine](t, wantStatus(t, e.rpc(`[1,`+call(1, "agent.list", `{}`)+`,{"jsonrpc":"2.0","method":"agent.list"},`+call(2, "nope", `{}`)+`,`+
		call(3, "agent.invoke", `{"input_text":"x","run_id":"in-batch"}`)+`,`+call(4, "session.get", `{"session_id":"ses_settle"}`)+`]`), 200))
	if len(batch) != 5 || batch[0].Error.Code != -32600 || batch[0].ID != nil || batch[1].Result == nil || batch[2].Error.Code != -32601 ||
		as[run](t, batch[3].Result).RunID != "in-batch" || batch[4].ID != 4.0 || !strings.Contains(string(batch[4].Result), `"run_f"`) {
		t.Errorf("%+v", batch)
	}
	<-w.invokes
	// Approvals are as in the native API: what was decided stays so.
	if got := as[rpcLine](t, wantStatus(t, e.rpc(call(1, "agent.approve", `{"run_id":"run_w","call_id":"asked"}`)), 200)); got.Error != nil {
		t.Errorf("%+v", got.Error)
	}
	if got := as[rpcLine](t, wantStatus(t, e.rpc(call(1, "agent.deny", `{"run_id":"run_w","call_id":"asked"}`)), 200)); got.Error == nil || got.Error.Code != -32009 {
		t.Errorf("%+v", got)
	}
}

// A failed run is an error, whichever word a client looks at; an edge that goes
// away breaks the stream off.
func TestRPCFailureIsFailure(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.scribe("default", "s")
	w.write(started("r"), said("r", "half"), of("r", event.RunFailed, event.RunFailedData{Code: event.CodeModelError, Message: "no model", Retryable: true}))
	if err := s.catalog.Apply(t.Context(), "default", logOf(t, s, "s")); err != nil {
		t.Fatal(err)
	}
	got := lines(t, e.rpc(call(1, "agent.attach", `{"run_id":"r"}`)))
	last := got[len(got)-1]
	if types(got) != "session_started message_before error session_finished error -32000" || last.Error.Message != "no model" || last.Error.Data["retryable"] != true {
		t.Errorf("%s %+v", types(got), last.Error)
	}
	inside := lines(t, e.rpc(call(1, "agent.attach", `{"run_id":"r","after":"`+got[2].Params.EventID+`"}`)))
	if types(inside) != "session_finished error -32000" {
		t.Errorf("inside the expansion: %s", types(inside))
	}
	if byTrace := lines(t, e.rpc(call(1, "agent.attach", `{"trace_id":"trace-r"}`))); types(byTrace) != types(got) {
		t.Errorf("by trace: %s", types(byTrace))
	}
	resumed := as[rpcLine](t, wantStatus(t, e.rpc(call(1, "agent.resume", `{"run_id":"r","new_run_id":"r2","stream":false}`)), 200))
	if st := as[run](t, resumed.Result); st.RunID != "r2" || st.Status != event.Pending {
		t.Errorf("%+v", resumed)
	}
}

func logOf(t testing.TB, s *site, session string) (all []event.Event) {
	t.Helper()
	k := eventlog.Key{Tenant: "default", Session: session}
	head, err := s.log.Head(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	for f, err := range s.log.Read(t.Context(), k, 0, head) {
		if err != nil {
			t.Fatal(err)
		}
		for line := range f.Lines() {
			e, err := event.Decode(line)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
	}
	return all
}
