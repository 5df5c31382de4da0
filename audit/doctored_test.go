package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A doctored log breaks one rule. Other rules may be broken with it.
type doctored struct {
	rule   Rule
	what   string
	events []event.Event
}

// put replaces the event of a story at which, counted from 1, by others.
func put(story []event.Event, which int, by ...event.Event) []event.Event {
	return slices.Replace(slices.Clone(story), which-1, which, by...)
}

// after puts events behind one of a story.
func after(story []event.Event, which int, more ...event.Event) []event.Event {
	return slices.Insert(slices.Clone(story), which, more...)
}

// where is the place, counted from 1, of the n-th event of a type.
func where(story []event.Event, t event.Type, n int) int {
	for i, e := range story {
		if e.Type == t {
			if n--; n == 0 {
				return i + 1
			}
		}
	}
	panic(fmt.Sprintf("no such %s", t))
}

// edit changes the data of the n-th event of a type, as text.
func edit(story []event.Event, t event.Type, n int, old, by string) []event.Event {
	i := where(story, t, n)
	e := story[i-1]
	data := strings.Replace(string(e.Data), old, by, 1)
	if data == string(e.Data) {
		panic(fmt.Sprintf("%s has no %q", e.Data, old))
	}
	e.Data = []byte(data)
	return put(story, i, e)
}

func doctoredLogs() []doctored {
	s, t, w, n := simple(), tools(), waits(), nested()
	unowned := s[4]
	shown := s[1]
	shown.Internal = false
	runless := s[4]
	runless.RunID = ""
	traced := s[4]
	traced.TraceID = "another"
	nameless := n[15]
	nameless.Agent = ""
	other := func(t event.Type, data any) event.Event { return line("other", t, data) }
	return []doctored{
		{EventForm, "data of another kind", edit(s, event.StepStarted, 1, `"step":1`, `"step":"one"`)},
		{FoldFails, "data of another kind", edit(s, event.StepStarted, 1, `"step":1`, `"step":"one"`)},
		{EventForm, "a claim that clients see", put(s, 2, shown)},
		{EventForm, "a status of no run", put(s, 5, runless)},
		{EventForm, "a sub-agent without its name", put(n, 16, nameless)},
		{SessionFirst, "no session.created", s[1:]},
		{SessionFirst, "session.created again", after(s, 16, s[0])},
		{ClaimNumber, "a claim left out", edit(t, event.SessionClaimed, 2, `"attempt":2`, `"attempt":3`)},
		{ClaimOwner, "no claim", put(s, 2)},
		{ClaimOwner, "an event after the release", after(s, 17, unowned)},
		{ClaimOwner, "released by somebody else", edit(s, event.SessionReleased, 1, "w1", "w9")},
		{ClaimRecovered, "a takeover without recovery", put(t, where(t, event.RunRecovered, 1))},
		{ClaimRecovered, "a recovery without takeover", after(s, 5, recovered("r", 2, 3))},
		{ClaimRecovered, "the attempt of a recovery", edit(t, event.RunRecovered, 1, `"attempt":2`, `"attempt":3`)},
		{ClaimRecovered, "a recovery from the future", edit(t, event.RunRecovered, 1, `"from_seq":25`, `"from_seq":27`)},
		{ClaimRecovered, "released instead of recovered", append(slices.Clone(t[:26]), release("w2", "drain"))},
		{RunLeft, "released in mid-run", append(slices.Clone(s[:13]), s[16])},
		{RunLeft, "released while a call waits for nobody", append(slices.Clone(t[:22]), release("w1", ""))},
		{RunLeft, "released while a run waits that could begin", put(w, where(w, event.RunCancelled, 1))},
		{RunLeft, "parked without an end", edit(w, event.RunStatus, 2, `"expires_at"`, `"expired_at"`)},
		{RunStart, "two starts", after(s, 3, s[2])},
		{RunStart, "no start", put(s, 3)},
		{RunStart, "a later attempt first", edit(s, event.RunStarted, 1, `"attempt":1`, `"attempt":2`)},
		{RunStart, "queued twice", after(w, where(w, event.RunQueued, 1), w[where(w, event.RunQueued, 1)-1])},
		{RunStart, "another trace", put(s, 5, traced)},
		{RunEnd, "two ends", after(s, 16, s[15])},
		{RunEnd, "an event after the end", after(s, 16, s[5])},
		{RunEnd, "a cancelled run that starts", put(w, where(w, event.RunStarted, 2), started("x", "cmd_3"))},
		{RunClosed, "a step open at the end", put(s, 15)},
		{RunClosed, "a message open at the end", put(s, 14)},
		{RunClosed, "reasoning open at the end", append(put(s, 14)[:6:6], s[6], s[14], s[15])},
		{RunClosed, "a call open at the end", put(t, where(t, event.ToolFailed, 1))},
		{RunClosed, "a sub-agent's run open at the end", put(n, where(n, event.RunCompleted, 1))},
		{RunInterleave, "two runs at once", after(s, 5, other(event.RunStarted, event.RunStartedData{Agent: "a", Attempt: 1}))},
		{RunInterleave, "an event of another run", append(w[:len(w)-3:len(w)-3], w[len(w)-3], line("s2", event.RunStarted, event.RunStartedData{Agent: "a", Attempt: 1}), w[len(w)-2])},
		{RunInterleave, "a sub-agent without a parent", edit(n, event.RunStarted, 2, `"parent_run_id":"r"`, `"parent_run_id":"z"`)},
		{RunInterleave, "a sub-agent without a call", edit(n, event.RunStarted, 2, `"parent_call_id":"c1"`, `"parent_call_id":"z"`)},
		{RunInterleave, "a sub-agent that outlives its call", append(n[:20:20], n[21], n[20])},
		{RunStatus, "a status that it had not", edit(s, event.RunStatus, 1, `"previous":"pending"`, `"previous":"waiting_tool"`)},
		{RunStatus, "a status that cannot follow", edit(s, event.RunStatus, 1, `"status":"running"`, `"status":"waiting_tool"`)},
		{RunStatus, "a status within a step", append(t[:20:20], t[21], t[20])},
		{RunStatus, "a step while waiting", put(t, where(t, event.RunStatus, 3))},
		{RunStatus, "a call while running", put(t, where(t, event.RunStatus, 2))},
		{RunStatus, "goes on while a call runs", append(t[:28:28], t[33], t[28])},
		{RunStatus, "completes while waiting", append(t[:33:33], t[43])},
		{RunExpiry, "waits for ever", edit(w, event.RunStatus, 2, `"expires_at"`, `"expired_at"`)},
		{RunExpiry, "an approval for ever", edit(w, event.ApprovalRequested, 1, `"expires_at"`, `"expired_at"`)},
		{RunResult, "another message", edit(s, event.RunCompleted, 1, `"message_id":"m"`, `"message_id":"u"`)},
		{RunResult, "other tokens", edit(s, event.RunCompleted, 1, `"input_tokens":10`, `"input_tokens":11`)},
		{RunResult, "fewer tokens than none", edit(s, event.StepCompleted, 1, `"output_tokens":2`, `"output_tokens":-2`)},
		{RunResult, "other steps", edit(s, event.RunCompleted, 1, `"steps":1`, `"steps":2`)},
		{CommandOnce, "one command, two runs", edit(w, event.RunStarted, 2, "cmd_2", "cmd_1")},
		{CommandOnce, "ignored twice", after(w, where(w, event.CommandIgnored, 1), w[where(w, event.CommandIgnored, 1)-1])},
		{StepOrder, "a step left out", edit(t, event.StepStarted, 2, `"step":2`, `"step":3`)},
		{StepOrder, "a step in a step", after(s, 6, stepStarted("r", 2))},
		{StepOrder, "the end of no step", after(s, 15, s[14])},
		{StepOrder, "a step ends before its message", append(s[:13:13], s[14], s[13], s[15], s[16])},
		{StepOrder, "a step while a call is open", put(t, where(t, event.ToolFailed, 1))},
		{MessagePair, "two beginnings", after(s, 11, s[10])},
		{MessagePair, "no beginning", put(s, 11)},
		{MessagePair, "a message outside of a step", after(s, 15, begun("r", "m9", 2))},
		{MessagePair, "text of another message", edit(s, event.TextDelta, 1, `"m"`, `"x"`)},
		{MessagePair, "an answer whole at once", put(s, 14, line("r", event.MessageCompleted, closer("m9", event.RoleAssistant, 2)))},
		{MessagePair, "the user twice", after(s, 4, s[3])},
		{MessagePair, "taken back twice", after(t, 10, t[9])},
		{MessagePair, "one that was taken back", put(t, 11, begun("r", "gone", 1))},
		{MessageText, "a delta lost", put(s, 12)},
		{MessageText, "deltas out of order", append(s[:11:11], append([]event.Event{s[12], s[11]}, s[13:]...)...)},
		{MessageText, "a call that was not begun", put(s, 14, line("r", event.MessageCompleted, closer("m", event.RoleAssistant, 1,
			event.Part{Type: event.PartReasoning, ReasoningID: "k", Text: "Well, hello.", Signature: "sig"}, text("Good day."), callPart("c"))))},
		{MessageText, "a call that is left out", put(t, 20, line("r", event.MessageCompleted, closer("m", event.RoleAssistant, 1, text("Two: "), callPart("c1"))))},
		{MessageText, "calls out of order", put(t, 20, line("r", event.MessageCompleted, closer("m", event.RoleAssistant, 1, text("Two: "), callPart("c2"), callPart("c1"))))},
		{MessageText, "reasoning left out", put(s, 14, line("r", event.MessageCompleted, closer("m", event.RoleAssistant, 1, text("Good day."))))},
		{MessageText, "another signature", edit(s, event.MessageCompleted, 2, `"signature":"sig"`, `"signature":"gis"`)},
		{MessageHash, "another sha256", edit(s, event.MessageCompleted, 2, `"sha256":"`, `"sha256":"0`)},
		{MessageSlot, "another index at the beginning", edit(s, event.MessageStarted, 1, `"index":1`, `"index":2`)},
		{MessageSlot, "another index at the end", edit(s, event.MessageCompleted, 2, `"index":1`, `"index":2`)},
		{MessageSlot, "another index of the user", edit(s, event.MessageCompleted, 1, `"index":0`, `"index":1`)},
		{ReasonPair, "two beginnings", after(s, 7, s[6])},
		{ReasonPair, "no beginning", put(s, 7)},
		{ReasonPair, "two ends", after(s, 10, s[9])},
		{ReasonPair, "more after the end", after(s, 10, s[8])},
		{ReasonText, "a delta lost", put(s, 8)},
		{CallPair, "two beginnings", after(t, 13, t[12])},
		{CallPair, "no beginning", put(t, 13)},
		{CallPair, "another index", edit(t, event.ToolStarted, 3, `"index":1`, `"index":2`)},
		{CallPair, "another name in the arguments", edit(t, event.ToolArgs, 1, `"name":"t"`, `"name":"u"`)},
		{CallPair, "another name in the result", edit(t, event.ToolCompleted, 1, `"name":"t"`, `"name":"u"`)},
		{CallPair, "a call outside of its message", after(t, 21, called("r", "m", "c9", 2, event.ByWorker))},
		{CallArgs, "a delta lost", put(t, 14)},
		{CallArgs, "closed twice", after(t, 18, t[17])},
		{CallArgs, "a delta after the end", after(t, 18, t[13])},
		{CallArgs, "not closed", put(t, 18)},
		{CallArgs, "others in the result", edit(t, event.ToolCompleted, 1, `{\"a\":1}`, `{\"a\":2}`)},
		{CallRunning, "runs within its answer", after(t, 18, running("r", "c1", 1))},
		{CallRunning, "runs within its step", append(t[:20:20], t[22], t[20], t[21])},
		{CallRunning, "a result without running", put(t[:24:24], 23, t[32])},
		{CallRunning, "a lost worker's result", put(t, where(t, event.ToolRunning, 3))},
		{CallRunning, "a lost worker's progress", after(t, 27, t[24])},
		{CallRunning, "the client's call", put(w, where(w, event.ToolCompleted, 3), running("r", "c3", 1))},
		{CallRunning, "one of a discarded answer", append(t[:9:9], running("r", "c0", 1), t[9])},
		{CallAttempt, "an attempt left out", edit(t, event.ToolRunning, 3, `"attempt":2`, `"attempt":3`)},
		{CallAttempt, "an attempt twice", edit(t, event.ToolRunning, 3, `"attempt":2`, `"attempt":1`)},
		{CallAttempt, "another key", edit(t, event.ToolRunning, 3, `r/c1`, `r/c9`)},
		{CallAttempt, "no key", edit(t, event.ToolRunning, 1, `r/c1`, ``)},
		{CallResult, "two results", after(t, 33, t[32])},
		{CallResult, "success, then failure", after(t, 33, failed("r", "c1", 0, event.CodeToolError, event.OutcomeFailed))},
		{CallResult, "running after the result", after(t, 33, running("r", "c1", 3))},
		{CallResult, "a result within the answer", after(t, 18, failed("r", "c1", 0, event.CodeToolError, event.OutcomeFailed))},
		{CallResult, "cut without the whole", edit(t, event.ToolCompleted, 1, `"content"`, `"truncated":true,"content"`)},
		{CallOutcome, "unknown, and never run", put(t, 23, failed("r", "c1", 0, event.CodeInterrupted, event.OutcomeUnknown))},
		{CallOutcome, "interrupted, and surely failed", edit(t, event.ToolFailed, 1, `"outcome":"unknown"`, `"outcome":"failed"`)},
		{CallOutcome, "no code", edit(t, event.ToolFailed, 1, `"code":"interrupted"`, `"code":""`)},
		{CallOutcome, "no outcome", edit(t, event.ToolFailed, 1, `"outcome":"unknown"`, `"outcome":"maybe"`)},
		{CallOutcome, "denied after it ran", edit(t, event.ToolFailed, 1, `"outcome":"unknown"`, `"outcome":"denied"`)},
		{CallApproval, "asked twice", after(w, 20, w[18])},
		{CallApproval, "about other arguments", edit(w, event.ApprovalRequested, 1, sum(`{"a":1}`), sum(`{"a":2}`))},
		{CallApproval, "asked within the step", append(w[:17:17], w[18], w[17])},
		{CallApproval, "decided unasked", after(w, 18, w[where(w, event.ApprovalResolved, 1)-1])},
		{CallApproval, "decided twice", after(w, where(w, event.ApprovalResolved, 2), w[where(w, event.ApprovalResolved, 2)-1])},
		{CallApproval, "decided by nobody", edit(w, event.ApprovalResolved, 1, "somebody", "")},
		{CallApproval, "another word", edit(w, event.ApprovalResolved, 1, "deny", "maybe")},
		{CallApproval, "runs before it is decided", put(w, where(w, event.ApprovalResolved, 2))},
		{CallApproval, "runs though denied", edit(w, event.ApprovalResolved, 2, "approve", "deny")},
		{CallApproval, "fails otherwise though denied", edit(w, event.ToolFailed, 1, `"outcome":"denied"`, `"outcome":"failed"`)},
		{CallApproval, "denied by nobody", put(w, where(w, event.ApprovalResolved, 1))},
		{ArtifactPair, "two beginnings", after(t, 30, t[29])},
		{ArtifactPair, "no beginning", put(t, 30)},
		{ArtifactPair, "begun by a call that does not run", edit(t, event.ArtifactStarted, 1, `"c1"`, `"c2"`)},
		{ArtifactPair, "it shrinks", edit(t, event.ArtifactCompleted, 1, `"bytes":5`, `"bytes":2`)},
		{ArtifactPair, "completed twice", after(t, 32, t[31])},
		{ArtifactPair, "without sha256", edit(t, event.ArtifactCompleted, 1, `"sha256":"`, `"sha1":"`)},
		{ArtifactPair, "after the result", append(t[:31:31], t[32], t[31])},
		{PatchFits, "a patch of the state", edit(t, event.StateDelta, 1, `/n`, `/x/y`)},
		{PatchFits, "a patch of an activity", edit(t, event.ActivityDelta, 1, `/n`, `/x/y`)},
		{PatchFits, "an activity without beginning", put(t, where(t, event.ActivitySnapshot, 1))},
	}
}

func TestDoctoredLogsAreFound(t *testing.T) {
	for _, d := range doctoredLogs() {
		wrong := check(numbered(d.events))
		if !has(wrong, d.rule) {
			t.Errorf("%s: %s: found %v", d.rule, d.what, wrong)
		}
	}
}

func has(list []Finding, rule Rule) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return f.Rule == rule })
}

// Numbers are broken on purpose here, so the logs are not numbered anew.
func TestNumbersAreHeld(t *testing.T) {
	for what, doctor := range map[string]func([]event.Event) []event.Event{
		"a gap":           func(l []event.Event) []event.Event { return slices.Delete(l, 12, 13) },
		"an event twice":  func(l []event.Event) []event.Event { return slices.Insert(l, 12, l[12]) },
		"order":           func(l []event.Event) []event.Event { l[7], l[8] = l[8], l[7]; return l },
		"another id":      func(l []event.Event) []event.Event { l[5].ID = "ses_1-7"; return l },
		"an older epoch":  func(l []event.Event) []event.Event { l[5].ID = event.NameIn("ses_1", l[5].Seq, 9); return l },
		"another session": func(l []event.Event) []event.Event { l[5].SessionID = "ses_2"; return l },
		"a late start":    func(l []event.Event) []event.Event { return l[4:] },
	} {
		if wrong := check(doctor(numbered(simple()))); !has(wrong, SeqDense) {
			t.Errorf("%s: found %v", what, wrong)
		}
	}
	noTime := numbered(simple())
	noTime[3].Time = event.Time{}
	if wrong := check(noTime); !has(wrong, EventForm) {
		t.Errorf("no time: found %v", wrong)
	}
}

func TestBrokenFramesAreFound(t *testing.T) {
	stored := func() []eventlog.Frame { return framed(numbered(tools()), 4) }
	second := func(l []eventlog.Frame) *eventlog.Frame { // of the writer that took over
		return &l[slices.IndexFunc(l, func(f eventlog.Frame) bool { return f.ID == "w_2-1" })]
	}
	for _, d := range []struct {
		rule   Rule
		what   string
		doctor func([]eventlog.Frame) []eventlog.Frame
	}{
		{FrameForm, "no LF at the end", func(l []eventlog.Frame) []eventlog.Frame {
			l[3].Data = l[3].Data[:len(l[3].Data)-1]
			return l
		}},
		{FrameForm, "a line break inside", func(l []eventlog.Frame) []eventlog.Frame {
			l[3].Data = append([]byte(" \r"), l[3].Data...)
			return l
		}},
		{FrameForm, "half an event", func(l []eventlog.Frame) []eventlog.Frame {
			l[3].Data = append(l[3].Data[:20:20], '\n')
			return l
		}},
		{FrameHeader, "the first event", func(l []eventlog.Frame) []eventlog.Frame { l[3].First++; return l }},
		{FrameHeader, "the last event", func(l []eventlog.Frame) []eventlog.Frame { l[3].Last++; return l }},
		{FrameHeader, "no event", func(l []eventlog.Frame) []eventlog.Frame { l[3].Data = nil; return l }},
		{FrameChain, "a frame lost", func(l []eventlog.Frame) []eventlog.Frame { return slices.Delete(l, 3, 4) }},
		{FrameChain, "the first frame lost", func(l []eventlog.Frame) []eventlog.Frame { return l[1:] }},
		{FrameChain, "another predecessor", func(l []eventlog.Frame) []eventlog.Frame { l[3].Prev = 5; return l }},
		{FrameWriter, "no id", func(l []eventlog.Frame) []eventlog.Frame { l[3].ID = ""; return l }},
		{FrameWriter, "no number", func(l []eventlog.Frame) []eventlog.Frame { l[3].ID = "w_1-x"; return l }},
		{FrameWriter, "a number left out", func(l []eventlog.Frame) []eventlog.Frame { l[3].ID = "w_1-9"; return l }},
		{FrameWriter, "a stranger without a claim", func(l []eventlog.Frame) []eventlog.Frame { l[3].ID = "w_9-1"; return l }},
		{FrameWriter, "a writer that begins in the middle", func(l []eventlog.Frame) []eventlog.Frame { second(l).ID = "w_2-3"; return l }},
		{FrameWriter, "a claim by the old writer", func(l []eventlog.Frame) []eventlog.Frame { second(l).ID = "w_1-8"; return l }},
		{FrameWriter, "a writer that was fenced", func(l []eventlog.Frame) []eventlog.Frame { l[len(l)-1].ID = "w_1-8"; return l }},
		{FrameSize, "an event too large", func(l []eventlog.Frame) []eventlog.Frame {
			e := event.New(event.Custom, event.CustomData{Name: strings.Repeat("x", event.MaxEncoded)})
			e.Seq, e.SessionID, e.Time = l[3].First, "ses_1", at
			l[3].Data = e.AppendLine(nil)
			return l
		}},
		{FrameSize, "a frame too large", func(l []eventlog.Frame) []eventlog.Frame {
			e := event.New(event.Custom, event.CustomData{Name: strings.Repeat("x", event.MaxFrame/2)})
			e.Seq, e.SessionID, e.Time = l[3].First, "ses_1", at
			l[3].Data = e.AppendLine(e.AppendLine(nil))
			return l
		}},
	} {
		c := NewChecker(key)
		for _, f := range d.doctor(stored()) {
			c.Frame(f, nil)
		}
		if wrong := c.Findings(); !has(wrong, d.rule) {
			t.Errorf("%s: %s: found %v", d.rule, d.what, wrong)
		}
	}
}

// A frame whose header cannot be read is a finding; its events are read on.
func TestUnreadableHeader(t *testing.T) {
	c := NewChecker(key)
	for i, f := range framed(numbered(simple()), 4) {
		var err error
		if i == 2 {
			f.First, f.Last, err = 0, 0, fmt.Errorf("no valid header")
		}
		c.Frame(f, err)
	}
	if wrong := c.Findings(); len(wrong) != 1 || wrong[0].Rule != FrameHeader {
		t.Errorf("found %v, want one %s", wrong, FrameHeader)
	}
}

func TestSnapshotIsCompared(t *testing.T) {
	list := numbered(tools())
	fold := func(n int) *event.Session {
		s := event.NewSession("ses_1")
		for _, e := range list[:n] {
			if err := s.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	check := func(s *event.Session, events []event.Event) []Finding {
		c := NewChecker(key)
		c.Snapshot(s)
		for _, e := range events {
			c.Event(e)
		}
		return c.Findings()
	}
	if wrong := check(fold(20), list); len(wrong) > 0 {
		t.Errorf("a true snapshot: %v", wrong)
	}
	lying := fold(20)
	lying.Messages[0].Parts[0].Text = "do nothing"
	if wrong := check(lying, list); !has(wrong, SnapshotFold) {
		t.Errorf("another text: %v", wrong)
	}
	if wrong := check(fold(20), list[:10]); !has(wrong, SnapshotFold) {
		t.Errorf("a snapshot of what is not there: %v", wrong)
	}
}

// What cannot be folded is said once, and the rest is checked all the same.
func TestAfterABreakTheRestIsChecked(t *testing.T) {
	list := slices.Delete(numbered(simple()), 12, 13)
	list = append(list, list[14])
	wrong := check(list)
	if !has(wrong, SeqDense) || !has(wrong, RunEnd) {
		t.Errorf("found %v", wrong)
	}
	many := numbered(simple())
	for range 3 * maxFindings {
		many = append(many, many[5])
	}
	wrong = check(many)
	if len(wrong) != maxFindings+1 || wrong[maxFindings].Rule != More {
		t.Errorf("%d findings, the last one %v", len(wrong), wrong[len(wrong)-1])
	}
}

// Whatever a request lacks is a finding at the event that ends the prefix.
func TestPrefixesWithoutAValidRequestAreFound(t *testing.T) {
	c := NewChecker(key)
	c.request = func(s *event.Session) error {
		if s.Seq == 13 {
			return errors.New("says nothing")
		}
		return nil
	}
	wrong := feed(c, numbered(simple()))
	if len(wrong) != 1 || wrong[0].Rule != RequestValid || wrong[0].Seq != 13 {
		t.Errorf("found %v", wrong)
	}
}
