package catalogtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// An Entry is an event in the order in which the log took it.
type Entry struct {
	Tenant string
	Event  event.Event
}

// A Log is a random log of several tenants and sessions, interleaved. The same
// seed gives the same log. Its sessions are dense and begin with
// session.created; apart from that anything may follow anything, since the
// catalog has to agree with the fold in whatever was written.
type Log struct {
	Entries []Entry
}

// Tenants that a Log's sessions belong to.
var Tenants = []string{"acme", "beta"}

// NewLog returns a log with this many events in each of its sessions.
func NewLog(seed uint64, sessions, events int) Log {
	rng := rand.New(rand.NewPCG(seed, 1))
	writers := make([]*writer, sessions)
	for i := range writers {
		writers[i] = &writer{rng: rng, tenant: Tenants[i%len(Tenants)], session: fmt.Sprintf("s-%d-%d", seed, i), done: map[string]bool{}}
	}
	var log Log
	for len(writers) > 0 {
		i := rng.IntN(len(writers))
		w := writers[i]
		log.Entries = append(log.Entries, Entry{w.tenant, w.next()})
		if int(w.seq) == events {
			writers = append(writers[:i], writers[i+1:]...)
		}
	}
	return log
}

// Events returns one session's events.
func (l Log) Events(session string) []event.Event {
	var events []event.Event
	for _, e := range l.Entries {
		if e.Event.SessionID == session {
			events = append(events, e.Event)
		}
	}
	return events
}

// Sessions returns each session's tenant.
func (l Log) Sessions() map[string]string {
	sessions := map[string]string{}
	for _, e := range l.Entries {
		sessions[e.Event.SessionID] = e.Tenant
	}
	return sessions
}

// writer writes one session.
type writer struct {
	rng     *rand.Rand
	tenant  string
	session string
	seq     event.Seq
	ids     int
	runs    []string
	calls   []string
	arts    []string
	msgs    []string
	done    map[string]bool // artifacts that were completed
}

func (w *writer) next() event.Event {
	if w.seq == 0 {
		return w.event("", event.SessionCreated, event.SessionCreatedData{Agent: w.word(), Metadata: []byte(`{"n":9007199254740993,"t":"a\u0007b"}`)})
	}
	if len(w.runs) == 0 || w.rng.IntN(12) == 0 {
		run := w.newID("run", &w.runs)
		return w.event(run, event.RunStarted, event.RunStartedData{Agent: w.word(), Attempt: 1, ParentRunID: w.maybe(w.runs[0]), ParentCallID: w.maybe("call")})
	}
	run := w.one(w.runs)
	return w.kinds()[w.rng.IntN(len(w.kinds()))](run)
}

// kinds are the writers of each sort of event.
func (w *writer) kinds() []func(run string) event.Event {
	return []func(string) event.Event{
		w.queued, w.status, w.ended, w.recovered, w.step, w.text, w.claimed,
		w.toolStarted, w.toolStarted, w.toolRunning, w.toolRunning, w.toolClosed, w.toolClosed, w.discarded,
		w.approval, w.artifactStarted, w.artifactProgress, w.artifactCompleted,
	}
}

func (w *writer) event(run string, t event.Type, data any) event.Event {
	w.seq++
	e := event.New(t, data)
	e.Seq, e.SessionID, e.ID = w.seq, w.session, fmt.Sprintf("%s-%d", w.session, w.seq)
	e.Time = event.At(time.Date(2026, 11, 30, 12, 0, 0, int(w.rng.Int32N(1e9)), time.UTC))
	if run != "" {
		e.RunID, e.TraceID = run, "trace-"+run[len(run)-1:]
	}
	e.Internal = w.rng.IntN(5) == 0
	return e
}

func (w *writer) newID(kind string, list *[]string) string {
	w.ids++
	id := fmt.Sprintf("%s-%s-%d", kind, w.session, w.ids)
	*list = append(*list, id)
	return id
}

func (w *writer) one(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return list[w.rng.IntN(len(list))]
}

func (w *writer) maybe(s string) string {
	if w.rng.IntN(2) == 0 {
		return ""
	}
	return s
}

func (w *writer) word() string {
	return w.one([]string{"demo", "weather", "Zürich", "北京", "it's \"quoted\"", "a\tb", `back\slash`, "<&>", "🌤", "%s $1"})
}

func (w *writer) usage() event.Usage {
	return event.Usage{InputTokens: w.rng.Int64N(1e6), OutputTokens: w.rng.Int64N(1e6), ReasoningTokens: w.rng.Int64N(9),
		CachedInputTokens: w.rng.Int64N(9), CostUSD: w.rng.Float64() / 3}
}

func (w *writer) queued(string) event.Event {
	return w.event(w.newID("run", &w.runs), event.RunQueued, event.RunQueuedData{Agent: w.word(), CommandID: "c"})
}

func (w *writer) status(run string) event.Event {
	s := []event.Status{event.Running, event.WaitingTool, event.WaitingApproval}[w.rng.IntN(3)]
	return w.event(run, event.RunStatus, event.RunStatusData{Status: s, Previous: event.Pending})
}

func (w *writer) ended(run string) event.Event {
	u := w.usage()
	switch w.rng.IntN(4) {
	case 0:
		return w.event(run, event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop, Output: event.RunOutput{MessageID: "m" + w.word()}, Usage: u})
	case 1:
		return w.event(run, event.RunFailed, event.RunFailedData{Code: event.CodeModelError, Message: w.word(), Retryable: w.rng.IntN(2) == 0, Usage: &u})
	case 2:
		return w.event(run, event.RunFailed, event.RunFailedData{Code: event.CodePoisoned, Message: w.word()})
	}
	return w.event(run, event.RunCancelled, event.RunCancelledData{By: w.word(), Reason: w.word()})
}

func (w *writer) recovered(run string) event.Event {
	return w.event(run, event.RunRecovered, event.RunRecoveredData{Attempt: 2, FromSeq: w.seq})
}

func (w *writer) step(run string) event.Event {
	return w.event(run, event.StepCompleted, event.StepCompletedData{Step: w.rng.IntN(9), FinishReason: event.FinishStop, Usage: w.usage()})
}

func (w *writer) text(run string) event.Event {
	if len(w.msgs) == 0 || w.rng.IntN(4) == 0 {
		return w.event(run, event.MessageStarted, event.MessageStartedData{MessageID: w.newID("msg", &w.msgs), Role: event.RoleAssistant})
	}
	return w.event(run, event.TextDelta, event.TextDeltaData{MessageID: w.msgs[len(w.msgs)-1], Delta: w.word()})
}

func (w *writer) claimed(string) event.Event {
	return w.event("", event.SessionClaimed, event.SessionClaimedData{Worker: w.word(), Attempt: 2})
}

func (w *writer) toolStarted(run string) event.Event {
	by := []event.Executor{event.ByWorker, event.ByWorker, event.ByClient}[w.rng.IntN(3)]
	return w.event(run, event.ToolStarted, event.ToolStartedData{CallID: w.newID("call", &w.calls), Name: w.word(), MessageID: w.one(w.msgs), Executor: by})
}

func (w *writer) toolRunning(run string) event.Event {
	return w.event(run, event.ToolRunning, event.ToolRunningData{CallID: w.one(w.calls), Attempt: 1 + w.rng.IntN(3), IdempotencyKey: "k"})
}

func (w *writer) toolClosed(run string) event.Event {
	var whole *event.Part
	if w.rng.IntN(3) == 0 {
		whole = &event.Part{Type: event.PartFile, ArtifactID: w.one(w.arts)}
	}
	if w.rng.IntN(2) == 0 {
		return w.event(run, event.ToolCompleted, event.ToolCompletedData{CallID: w.one(w.calls), Name: w.word(), Args: "{}", Content: []event.Part{event.TextPart(w.word())}, Truncated: whole != nil, Artifact: whole})
	}
	return w.event(run, event.ToolFailed, event.ToolFailedData{CallID: w.one(w.calls), Name: w.word(), Args: "{", Code: event.CodeToolTimeout, Message: w.word(), Outcome: event.OutcomeUnknown, Truncated: whole != nil, Artifact: whole})
}

func (w *writer) discarded(run string) event.Event {
	return w.event(run, event.MessageDiscarded, event.MessageDiscardedData{MessageID: w.one(w.msgs), Reason: "model_stream_broken"})
}

func (w *writer) approval(run string) event.Event {
	if w.rng.IntN(2) == 0 {
		return w.event(run, event.ApprovalRequested, event.ApprovalRequestedData{CallID: w.one(w.calls), ArgsSHA256: "00"})
	}
	return w.event(run, event.ApprovalResolved, event.ApprovalResolvedData{CallID: w.one(w.calls), Decision: "approve", By: "u"})
}

func (w *writer) artifactStarted(run string) event.Event {
	return w.event(run, event.ArtifactStarted, event.ArtifactStartedData{ArtifactID: w.newID("art", &w.arts), CallID: w.one(w.calls), Name: w.word(), MediaType: "text/plain"})
}

func (w *writer) artifactProgress(run string) event.Event {
	id := w.one(w.arts)
	if len(w.arts) == 0 || w.done[id] {
		return w.artifactStarted(run)
	}
	return w.event(run, event.ArtifactProgress, event.ArtifactProgressData{ArtifactID: id, Bytes: w.rng.Int64N(1e12)})
}

func (w *writer) artifactCompleted(run string) event.Event {
	id := w.one(w.arts)
	w.done[id] = true
	return w.event(run, event.ArtifactCompleted, event.ArtifactCompletedData{ArtifactID: id, CallID: w.one(w.calls), Name: w.word(), MediaType: "text/plain", Bytes: w.rng.Int64N(1e12), SHA256: "ab", URL: "/artifacts/" + id})
}
