package systemtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// repeatable are the tools whose calls may be executed again after a crash: by their annotations.
var repeatable = []string{"count_slowly", "lookup", "fail", "big"}

// checkLog reads a session's whole log and checks what holds of every log: dense numbers, a fold that equals the
// snapshot, claims in order, runs that do not interleave and end once, everything opened closed, no tool run twice
// but by its policy. Runs that are still going on may have open things.
func checkLog(t testing.TB, e edge, session string) []event.Event {
	t.Helper()
	s := e.listen(t, "/v1/sessions/"+session+"/events?include=internal&follow=false", ndjson)
	defer s.close()
	list := events(t, s.rest())
	for _, complaint := range judge(session, list) {
		t.Errorf("log of %s: %s", session, complaint)
	}
	if t.Failed() {
		for _, e := range list {
			t.Logf("%.300s", e.AppendLine(nil))
		}
		return list
	}
	checkSnapshots(t, e, session, list)
	return list
}

// checkSnapshots compares the fold with what the edge says, for auditors and for clients. The session may have
// moved on since the log was read.
func checkSnapshots(t testing.TB, e edge, session string, list []event.Event) {
	t.Helper()
	if len(list) == 0 {
		return
	}
	whole := fold(t, list)
	for query, want := range map[string][]byte{"?include=internal": whole.Encode(), "": whole.EncodePublic()} {
		a := e.get(t, "/v1/sessions/"+session+"/snapshot"+query)
		if into[event.Session](t, a).Seq == whole.Seq {
			sameJSON(t, "snapshot"+query+" of "+session, a.body, want)
		}
	}
}

// judge returns what is wrong with a log.
func judge(session string, list []event.Event) []string {
	j := &judgement{session: session, runs: map[string]*runLife{}, open: map[string]string{}, attempts: map[string]int{}, names: map[string]string{}, texts: map[string]string{}}
	for i, e := range list {
		j.dense(i, e)
		j.claims(e)
		j.run(e)
		j.pairs(e)
		j.tools(e)
		j.text(e)
	}
	j.end()
	return j.complaints
}

// A judgement is the state of a log's checker.
type judgement struct {
	session    string
	complaints []string
	claim      event.SessionClaimedData
	released   bool
	active     string // run
	runs       map[string]*runLife
	open       map[string]string // what was opened and not closed -> its run
	attempts   map[string]int    // executions of a call
	names      map[string]string // of the tools of calls
	texts      map[string]string // of messages
	said       bool              // the message that was completed last came in deltas
}

// A runLife is what a log has told of a run.
type runLife struct {
	started, ended bool
	recovered      int
}

func (j *judgement) wrong(e event.Event, format string, args ...any) {
	j.complaints = append(j.complaints, fmt.Sprintf("event %d, %s: ", e.Seq, e.Type)+fmt.Sprintf(format, args...))
}

func (j *judgement) dense(i int, e event.Event) {
	want := event.Seq(i + 1)
	if e.Seq != want || e.ID != event.NameIn(j.session, want, e.Epoch()) || e.SessionID != j.session {
		j.wrong(e, "is number %d in the log, id %s, session %s", want, e.ID, e.SessionID)
	}
	if (e.Type == event.SessionCreated) != (i == 0) {
		j.wrong(e, "session.created has to be the first event and no other")
	}
}

func (j *judgement) claims(e event.Event) {
	switch e.Type {
	case event.SessionClaimed:
		var d event.SessionClaimedData
		j.data(e, &d)
		if d.Attempt != j.claim.Attempt+1 {
			j.wrong(e, "attempt %d follows %d", d.Attempt, j.claim.Attempt)
		}
		// The same worker may claim again, when it could not reach the log for a while.
		j.claim, j.released = d, false
	case event.SessionReleased:
		var d event.SessionReleasedData
		j.data(e, &d)
		if d.Worker != j.claim.Worker || j.released {
			j.wrong(e, "%s lets go of what %s has", d.Worker, j.claim.Worker)
		}
		j.released = true
	default:
		if e.Type != event.SessionCreated && (j.claim.Worker == "" || j.released) {
			j.wrong(e, "nobody has the session")
		}
	}
}

func (j *judgement) data(e event.Event, d any) {
	if err := e.Into(d); err != nil {
		j.wrong(e, "%v", err)
	}
}

// aside are events about a run that may come while another one is going on, or after its end.
var aside = []event.Type{event.RunQueued, event.CommandIgnored}

func (j *judgement) run(e event.Event) {
	if e.RunID == "" {
		return
	}
	life := j.runs[e.RunID]
	if life == nil {
		life = &runLife{}
		j.runs[e.RunID] = life
	}
	switch {
	case slices.Contains(aside, e.Type):
		return
	case life.ended:
		j.wrong(e, "run %s has ended", e.RunID)
	case e.Type == event.RunCancelled && !life.started: // while it was waiting
	case j.active != "" && j.active != e.RunID:
		j.wrong(e, "run %s is going on", j.active)
	case e.Type == event.RunStarted:
		j.active, life.started = e.RunID, true
	case !life.started:
		j.wrong(e, "run %s has not started", e.RunID)
	}
	if e.Type == event.RunRecovered {
		life.recovered++
	}
	if e.Type.Terminal() {
		life.ended = true
		j.closed(e)
	}
}

// closed checks at the end of a run that it has left nothing open.
func (j *judgement) closed(e event.Event) {
	if j.active == e.RunID {
		j.active = ""
	}
	for what, run := range j.open {
		if run == e.RunID {
			j.wrong(e, "%s is still open", what)
		}
	}
}

// pairs follows what is opened and closed: steps, messages, reasoning, calls.
func (j *judgement) pairs(e event.Event) {
	var d struct {
		Step        int    `json:"step"`
		MessageID   string `json:"message_id"`
		ReasoningID string `json:"reasoning_id"`
		CallID      string `json:"call_id"`
		Name        string `json:"name"`
	}
	j.data(e, &d)
	step, msg, rsn, call := fmt.Sprintf("step %d of %s", d.Step, e.RunID), "message "+d.MessageID, "reasoning "+d.ReasoningID, "call "+d.CallID
	switch e.Type {
	case event.StepStarted:
		j.begin(e, step)
	case event.StepCompleted:
		j.finish(e, step)
	case event.MessageStarted:
		j.begin(e, msg)
	case event.MessageCompleted: // what comes with a request has no opener
		_, j.said = j.open[msg]
		delete(j.open, msg)
	case event.MessageDiscarded:
		j.discard(e.RunID)
	case event.ReasoningStarted:
		j.begin(e, rsn)
	case event.ReasoningCompleted:
		j.finish(e, rsn)
	case event.ToolStarted:
		j.begin(e, call)
		j.names[d.CallID] = d.Name
	case event.ToolCompleted, event.ToolFailed:
		j.finish(e, call)
	}
}

func (j *judgement) begin(e event.Event, what string) {
	if _, there := j.open[what]; there {
		j.wrong(e, "%s is open already", what)
	}
	j.open[what] = e.RunID
}

func (j *judgement) finish(e event.Event, what string) {
	if j.open[what] != e.RunID || e.RunID == "" {
		j.wrong(e, "%s is not open", what)
	}
	delete(j.open, what)
}

// discard takes back what the model was saying, but not the step, which is tried again.
func (j *judgement) discard(run string) {
	for what, of := range j.open {
		if of == run && what[:4] != "step" {
			delete(j.open, what)
		}
	}
}

// tools checks that calls are executed once, or again by policy after a takeover.
func (j *judgement) tools(e event.Event) {
	if e.Type != event.ToolRunning {
		return
	}
	var d event.ToolRunningData
	j.data(e, &d)
	j.attempts[d.CallID]++
	name := j.names[d.CallID]
	switch n := j.attempts[d.CallID]; {
	case d.Attempt != n:
		j.wrong(e, "%s has attempt %d, is the %dth", name, d.Attempt, n)
	case n > 1 && !slices.Contains(repeatable, name):
		j.wrong(e, "%s is executed again", name)
	case n > 1+j.runs[e.RunID].recovered && d.Reason == "": // else it was not answered
		j.wrong(e, "%s is executed again without a takeover", name)
	}
	if d.IdempotencyKey != e.RunID+"/"+d.CallID {
		j.wrong(e, "idempotency key %q", d.IdempotencyKey)
	}
}

// text checks that deltas come to what the closer says.
func (j *judgement) text(e event.Event) {
	switch e.Type {
	case event.TextDelta:
		var d event.TextDeltaData
		j.data(e, &d)
		if _, open := j.open["message "+d.MessageID]; !open {
			j.wrong(e, "message %s is not open", d.MessageID)
		}
		j.texts[d.MessageID] += d.Delta
	case event.MessageDiscarded:
		var d event.MessageDiscardedData
		j.data(e, &d)
		delete(j.texts, d.MessageID)
	case event.MessageCompleted:
		var d event.MessageCompletedData
		j.data(e, &d)
		if said := textOf(d.Parts); j.said && said != j.texts[d.MessageID] {
			j.wrong(e, "its deltas say %q, it says %q", j.texts[d.MessageID], said)
		}
		if d.SHA256 != event.TextHash(d.Parts) {
			j.wrong(e, "sha256 %s", d.SHA256)
		}
	}
}

func textOf(parts []event.Part) string {
	text := ""
	for _, p := range parts {
		if p.Type == event.PartText {
			text += p.Text
		}
	}
	return text
}

// end checks that nobody lets go of a session with a run going on, unless it is handed over.
func (j *judgement) end() {
	if j.active == "" && len(j.open) > 0 {
		j.complaints = append(j.complaints, fmt.Sprintf("open at the end: %v", j.open))
	}
}

// ofRun are a run's events that clients see.
func ofRun(list []event.Event, runID string) []event.Event {
	return slices.DeleteFunc(slices.Clone(list), func(e event.Event) bool { return e.RunID != runID || e.Internal })
}

// types of events, for comparing stories.
func count(list []event.Event, kind event.Type) int {
	n := 0
	for _, e := range list {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// last is a run's last event.
func last(list []event.Event) event.Event { return list[len(list)-1] }

func TestBrokenLogsAreNoticed(t *testing.T) {
	run := func(typ event.Type, data any) event.Event {
		e := event.New(typ, data)
		e.RunID = "r"
		return e
	}
	good := []event.Event{
		event.New(event.SessionCreated, event.SessionCreatedData{Agent: "a"}),
		event.New(event.SessionClaimed, event.SessionClaimedData{Worker: "w", Attempt: 1}),
		run(event.RunStarted, event.RunStartedData{Agent: "a", Attempt: 1}),
		run(event.StepStarted, event.StepStartedData{Step: 1}),
		run(event.MessageStarted, event.MessageStartedData{MessageID: "m", Role: event.RoleAssistant}),
		run(event.TextDelta, event.TextDeltaData{MessageID: "m", Delta: "hi"}),
		run(event.ToolStarted, event.ToolStartedData{CallID: "c", Name: "sleep", MessageID: "m"}),
		run(event.MessageCompleted, event.MessageCompletedData{MessageID: "m", Role: event.RoleAssistant, Parts: []event.Part{event.TextPart("hi")}, SHA256: event.TextHash([]event.Part{event.TextPart("hi")})}),
		run(event.StepCompleted, event.StepCompletedData{Step: 1}),
		run(event.ToolRunning, event.ToolRunningData{CallID: "c", Attempt: 1, IdempotencyKey: "r/c"}),
		run(event.ToolCompleted, event.ToolCompletedData{CallID: "c", Name: "sleep"}),
		run(event.RunCompleted, event.RunCompletedData{}),
		event.New(event.SessionReleased, event.SessionReleasedData{Worker: "w"}),
	}
	number := func(list []event.Event) []event.Event {
		for i := range list {
			list[i].Seq, list[i].SessionID = event.Seq(i+1), "s"
			list[i].ID = "s-" + list[i].Seq.String()
		}
		return list
	}
	if wrong := judge("s", number(slices.Clone(good))); len(wrong) > 0 {
		t.Fatalf("a good log: %v", wrong)
	}
	twice := func(i int) []event.Event { return number(slices.Insert(slices.Clone(good), i, good[i])) }
	without := func(i int) []event.Event { return number(slices.Delete(slices.Clone(good), i, i+1)) }
	hole := number(slices.Clone(good))
	for what, list := range map[string][]event.Event{
		"a gap": slices.Delete(hole, 5, 6), "a tool executed twice": twice(9), "two ends": twice(11), "a second claim": twice(1),
		"no claim": without(1), "a message that was not closed": without(7), "a call without result": without(10),
		"a step without end": without(8), "a lost delta": without(5), "no start": without(2),
		"an event after the release": number(append(slices.Clone(good), good[3])),
	} {
		if len(judge("s", list)) == 0 {
			t.Errorf("%s is not noticed", what)
		}
	}
}
