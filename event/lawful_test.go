package event

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// choices decide what happens next in a random log.
type choices interface{ IntN(n int) int }

// bytesChoices lets a fuzzer decide.
type bytesChoices []byte

func (b *bytesChoices) IntN(n int) int {
	if len(*b) == 0 {
		return 0
	}
	v := int((*b)[0])
	*b = (*b)[1:]
	return v % n
}

// lawful writes logs as workers do: runs, steps, attempts that are discarded,
// parallel tools, steering, cancels, takeovers in between.
type lawful struct {
	choices
	s      *Session
	events []Event
	ids    int
	run    string
	msg    string   // the message that the model writes
	parts  []Part   // of msg so far
	open   []string // calls of the last message without result
	args   map[string]string
}

// lawfulLog returns about n events that a worker could have written.
func lawfulLog(c choices, n int) *lawful {
	l := &lawful{choices: c, s: NewSession("s"), args: map[string]string{}}
	l.add(SessionCreated, "", SessionCreatedData{Agent: "demo"})
	for len(l.events) < n {
		l.next()
	}
	return l
}

func (l *lawful) add(t Type, run string, data any) {
	e := New(t, data)
	e.Seq, e.SessionID, e.RunID = l.s.Seq+1, "s", run
	e.ID = "s-" + e.Seq.String()
	if l.IntN(8) == 0 && t != RunStarted {
		e.Internal = true
	}
	if err := l.s.Apply(e); err != nil {
		panic(err)
	}
	l.events = append(l.events, e)
}

func (l *lawful) id(prefix string) string {
	l.ids++
	odd := []string{"", "", "", " weird/ü", "-with-a-tail-that-is-longer-than-any-provider-takes"}
	return fmt.Sprintf("%s_%d%s", prefix, l.ids, odd[l.IntN(len(odd))])
}

var words = []string{"", " ", "hello", "北京 🌤", "\n\n", "a\u2028b", "[x]", "\x00", "{\"a\":1}", "  end ", "é"}

func (l *lawful) word() string { return words[l.IntN(len(words))] }

func (l *lawful) next() {
	switch {
	case l.run == "":
		l.start()
	case l.IntN(25) == 0:
		l.takeover()
	case l.IntN(30) == 0:
		l.finish()
	case l.IntN(12) == 0:
		l.said(RoleUser)
	case l.msg != "":
		l.write()
	case len(l.open) > 0:
		l.work()
	default:
		l.step()
	}
}

func (l *lawful) start() {
	l.run = l.id("run")
	l.add(RunStarted, l.run, RunStartedData{Agent: "demo", Attempt: 1})
	for range l.IntN(3) {
		l.said([]Role{RoleUser, RoleUser, RoleUser, RoleSystem, RoleAssistant}[l.IntN(5)])
	}
}

// said adds a message that a client sent.
func (l *lawful) said(role Role) {
	parts := []Part{TextPart(l.word())}
	switch l.IntN(6) {
	case 0:
		parts = nil
	case 1:
		parts = append(parts, Part{Type: PartImage, Name: "cat.png", MediaType: "image/png", Bytes: 12, URL: "/artifacts/art_1", ArtifactID: "art_1"})
	case 2:
		parts = append(parts, Part{Type: PartFile, MediaType: "text/plain", URL: "data:text/plain;base64,aGk="}, TextPart(l.word()))
	}
	l.add(MessageCompleted, l.run, MessageCompletedData{MessageID: l.id("msg"), Role: role, Parts: parts})
}

func (l *lawful) step() {
	l.add(StepStarted, l.run, StepStartedData{Step: 1})
	for range l.IntN(3) {
		l.think()
	}
	l.msg, l.parts = l.id("msg"), nil
	l.add(MessageStarted, l.run, MessageStartedData{MessageID: l.msg, Role: RoleAssistant})
	for _, m := range l.s.Messages[len(l.s.Messages)-1].Parts {
		l.parts = append(l.parts, *m)
	}
}

func (l *lawful) think() {
	p := Part{Type: PartReasoning, ReasoningID: l.id("rsn"), Text: l.word(), Signature: []string{"", "sig", RedactedThinking + "ZGF0YQ"}[l.IntN(3)]}
	l.add(ReasoningStarted, l.run, ReasoningStartedData{ReasoningID: p.ReasoningID})
	l.add(ReasoningDelta, l.run, ReasoningDeltaData{ReasoningID: p.ReasoningID, Delta: p.Text})
	l.add(ReasoningCompleted, l.run, ReasoningCompletedData{ReasoningID: p.ReasoningID, Text: p.Text, Signature: p.Signature})
	if l.msg != "" {
		l.parts = append(l.parts, p)
	}
}

func (l *lawful) write() {
	switch l.IntN(10) {
	case 0:
		l.think()
	case 1, 2:
		l.call()
	case 3, 4:
		l.complete()
	case 5:
		l.discard()
	default:
		l.text(l.word())
	}
}

func (l *lawful) text(word string) {
	l.add(TextDelta, l.run, TextDeltaData{MessageID: l.msg, Delta: word})
	if n := len(l.parts); n > 0 && l.parts[n-1].Type == PartText {
		l.parts[n-1].Text += word
	} else {
		l.parts = append(l.parts, TextPart(word))
	}
}

func (l *lawful) call() {
	id, name := l.id("call"), []string{"lookup", "a.b", "", "名前", "x y"}[l.IntN(5)]
	args := []string{`{"a":9007199254740993}`, ``, `{`, `[1]`, `{"x":"\ud83d"}`, `"text"`, ` {} `, `{"x":"\ud83d\ude00 \\ud83d"}`}[l.IntN(8)]
	l.open, l.args[id] = append(l.open, id), args
	l.parts = append(l.parts, Part{Type: PartToolCall, CallID: id})
	l.add(ToolStarted, l.run, ToolStartedData{CallID: id, Name: name, MessageID: l.msg, Executor: ByWorker})
	half := len(args) / 2
	l.add(ToolArgsDelta, l.run, ToolArgsDeltaData{CallID: id, Delta: args[:half]})
	if l.IntN(3) > 0 {
		l.add(ToolArgsDelta, l.run, ToolArgsDeltaData{CallID: id, Delta: args[half:]})
		l.add(ToolArgs, l.run, ToolArgsData{CallID: id, Name: name, Args: args})
	}
}

func (l *lawful) complete() {
	if l.msg == "" {
		return
	}
	l.add(MessageCompleted, l.run, MessageCompletedData{MessageID: l.msg, Role: RoleAssistant, Parts: slices.Clone(l.parts)})
	l.msg, l.parts = "", nil
	l.add(StepCompleted, l.run, StepCompletedData{Step: 1})
}

func (l *lawful) discard() {
	if l.msg == "" {
		return
	}
	l.add(MessageDiscarded, l.run, MessageDiscardedData{MessageID: l.msg, Reason: "retry"})
	l.msg, l.parts, l.open = "", nil, nil
}

// work moves one of the open calls on, in any order.
func (l *lawful) work() {
	i := l.IntN(len(l.open))
	id := l.open[i]
	switch l.IntN(6) {
	case 0:
		l.add(ApprovalRequested, l.run, ApprovalRequestedData{CallID: id})
	case 1:
		l.add(ApprovalResolved, l.run, ApprovalResolvedData{CallID: id, Decision: "approve"})
	case 2:
		l.add(ToolRunning, l.run, ToolRunningData{CallID: id, Attempt: 1})
	case 3:
		l.close(i, l.failed(id))
	default:
		l.close(i, l.completed(id))
	}
}

func (l *lawful) close(i int, data any) {
	t := ToolCompleted
	if _, failed := data.(ToolFailedData); failed {
		t = ToolFailed
	}
	l.add(t, l.run, data)
	l.open = slices.Delete(l.open, i, i+1)
}

func (l *lawful) completed(id string) ToolCompletedData {
	d := ToolCompletedData{CallID: id, Name: "lookup", Args: l.args[id], Content: []Part{}}
	switch l.IntN(4) {
	case 0:
		d.Content = []Part{TextPart(l.word()), {Type: PartJSON, Value: []byte(`{"n":1}`)}}
	case 1:
		d.Structured = []byte(`{"low":5}`)
	case 2:
		d.Content, d.Truncated = []Part{TextPart("head")}, true
		d.Artifact = &Part{Type: PartFile, ArtifactID: "art_9", Bytes: 3 << 20}
	}
	return d
}

func (l *lawful) failed(id string) ToolFailedData {
	outcomes := []Outcome{OutcomeFailed, OutcomeUnknown, OutcomeDenied, OutcomeCancelled, "later"}
	return ToolFailedData{CallID: id, Name: "lookup", Args: l.args[id], Code: CodeToolError, Message: l.word(), Outcome: outcomes[l.IntN(len(outcomes))]}
}

// takeover is what another worker writes after a crash.
func (l *lawful) takeover() {
	l.add(SessionClaimed, "", SessionClaimedData{Worker: "w2", Attempt: 2})
	l.add(RunRecovered, l.run, RunRecoveredData{Attempt: 2, FromSeq: l.s.Seq})
	if l.IntN(2) == 0 {
		l.discard()
	}
}

// finish ends the run, tidily or with its calls and texts left open as a log
// that was cut would have them.
func (l *lawful) finish() {
	if l.IntN(3) > 0 {
		l.complete()
		for len(l.open) > 0 {
			l.close(0, l.failed(l.open[0]))
		}
	}
	l.msg, l.parts, l.open = "", nil, nil
	switch l.IntN(3) {
	case 0:
		l.add(RunCancelled, l.run, RunCancelledData{By: "client"})
	case 1:
		l.add(RunFailed, l.run, RunFailedData{Code: CodeModelError})
	default:
		l.add(RunCompleted, l.run, RunCompletedData{FinishReason: FinishStop})
	}
	l.run = ""
}

func seeded(seed uint64) choices { return rand.New(rand.NewPCG(seed, 1)) }
