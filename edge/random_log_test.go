package edge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A chronicle is all that a session's log has ever held, as its writer was told that
// it will be stored, and what may be gone from the log since.
type chronicle struct {
	key eventlog.Key

	mu      sync.Mutex
	events  []event.Event // as they are read back
	lines   [][]byte
	parents map[string]string    // of sub-agents' runs
	begins  map[string]event.Seq // of runs that are accepted: the last event before them
	ends    map[string]event.Seq // of runs: their terminal event
	synced  event.Seq            // committed
	saved   event.Seq            // there may be a snapshot of this
	gone    event.Seq            // events through this one may be purged
	lost    []event.Event        // that have followed some of the events, before a restore
}

func newChronicle(session string) *chronicle {
	return &chronicle{key: eventlog.Key{Tenant: "default", Session: session}, parents: map[string]string{}, begins: map[string]event.Seq{}, ends: map[string]event.Seq{}}
}

// add appends events; nobody looks at the chronicle before it has them.
func (c *chronicle) add(w *eventlog.Writer, list []event.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored, err := w.Append(list...)
	for _, e := range stored {
		line := e.AppendLine(nil)
		line = line[:len(line)-1]
		if e, err = event.Decode(line); err != nil {
			return err
		}
		c.events, c.lines = append(c.events, e), append(c.lines, line)
		if d := (event.RunStartedData{}); e.Type == event.RunStarted && e.Into(&d) == nil {
			c.parents[e.RunID] = d.ParentRunID
		}
		if e.Type.Terminal() {
			c.ends[e.RunID] = e.Seq
		}
	}
	return err
}

func (c *chronicle) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// cut notes that a restore has left the events through one.
func (c *chronicle) cut(kept event.Seq) {
	c.note(func() {
		c.lost, c.events, c.lines, c.synced = c.events[kept:], c.events[:kept:kept], c.lines[:kept:kept], kept
		maps.DeleteFunc(c.ends, func(_ string, end event.Seq) bool { return end > kept })
	})
}

func (c *chronicle) head() event.Seq {
	c.mu.Lock()
	defer c.mu.Unlock()
	return event.Seq(len(c.events))
}

func (c *chronicle) at(seq event.Seq) (event.Event, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events[seq-1], c.lines[seq-1]
}

// epoch is that of an event.
func (c *chronicle) epoch(seq event.Seq) event.Epoch {
	if seq == 0 {
		return 0
	}
	e, _ := c.at(seq)
	return e.Epoch()
}

func (c *chronicle) committed() event.Seq {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced
}

// begin is the last event before a run, if that is accepted.
func (c *chronicle) begin(run string) (at event.Seq, accepted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, accepted = c.begins[run]
	return at, accepted
}

// end is the terminal event of a run, 0 if there is none yet.
func (c *chronicle) end(run string) event.Seq {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends[run]
}

// within reports whether an event is of a run or of one of its sub-agents.
func (c *chronicle) within(e event.Event, run string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := e.RunID
	for e.Agent != "" && id != run && id != "" {
		id = c.parents[id]
	}
	return run == "" || id == run
}

// mayBeGone reports whether a client at a position may be told that it is no longer
// kept; folds: what it is told needs the session before.
func (c *chronicle) mayBeGone(at event.Seq, folds bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at < c.gone || folds && c.gone > 0 && at < c.saved
}

// mayBeAnother reports whether nothing tells that a client's last event is not one that a
// restore has lost: there was one since, and the event is purged.
func (c *chronicle) mayBeAnother(at stream.Position) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Seq > 0 && at.Seq <= c.gone && at.Epoch != c.events[len(c.events)-1].Epoch()
}

// fold is the session after an event.
func (c *chronicle) fold(seq event.Seq) (*event.Session, error) {
	s := event.NewSession(c.key.Session)
	return s, c.advance(s, seq)
}

func (c *chronicle) advance(s *event.Session, seq event.Seq) error {
	for s.Seq < seq {
		e, _ := c.at(s.Seq + 1)
		if err := s.Apply(e); err != nil {
			return err
		}
	}
	return nil
}

// An author writes a session as workers do, and has its beginning purged now and then.
type author struct {
	*chronicle
	random *rand.Rand
	runs   []string
	plan   map[string]string // the scenarios of runs; others talk a lot
	log    *eventlog.Log
	stream jetstream.Stream
	purges bool
	stands event.Seq     // there is a snapshot of this
	giants int           // events near the limit that it may still write
	last   eventlog.Head // that it has written
}

// runsOf are those that there will be when a run is written as it is planned.
func (a *author) runsOf(run string) []string {
	switch a.plan[run] {
	case "queued":
		return []string{run, run + "b", run + "c"}
	case "subagent":
		return []string{run, run + "-sub"}
	}
	return []string{run}
}

// accept makes runs known that come now, as an edge does.
func (a *author) accept(ctx context.Context, runs []string) error {
	for _, run := range runs {
		for { // the log may be away
			ref, _, err := a.log.Reserve(ctx, a.key.Tenant, "", eventlog.RunRef{RunID: run, SessionID: a.key.Session, TraceID: "t", Agent: "demo", After: a.synced})
			if err == nil {
				err = a.log.Accept(ctx, ref)
			}
			if err == nil {
				break
			}
			if !errors.Is(err, eventlog.ErrUnavailable) {
				return err
			}
		}
		a.note(func() { a.begins[run] = a.synced })
	}
	return nil
}

// play writes runs.
func (a *author) play(ctx context.Context, runs []string) error {
	w := a.log.Writer(a.key, a.last)
	defer func() { a.last = w.Head() }()
	defer w.Close()
	for _, run := range runs {
		if err := a.sync(ctx, w); err != nil {
			return err
		}
		if err := a.accept(ctx, a.runsOf(run)); err != nil {
			return err
		}
		list, err := a.tell(run)
		if err != nil {
			return err
		}
		for list = a.sprinkled(run, list); len(list) > 0; {
			n := min(len(list), 1+a.random.IntN(12))
			if err := a.add(w, list[:n]); err != nil {
				return err
			}
			list = list[n:]
			if a.random.IntN(3) == 0 {
				continue // into one frame with what follows
			}
			if err := a.sync(ctx, w); err != nil {
				return err
			}
			_ = a.log.Beat(a.key, eventlog.Beat{Worker: "w", RunID: run, Status: event.Running, Head: w.Head().Seq}) // or it is lost
			if err := a.keepHouse(ctx, w.Head()); err != nil && !errors.Is(err, eventlog.ErrUnavailable) {
				return err
			}
			a.think()
		}
	}
	return a.sync(ctx, w)
}

// think is as long as models take, and sometimes so long that edges let go of what
// sessions that are written have in memory.
func (a *author) think() {
	pause := time.Duration(a.random.IntN(12)) * time.Millisecond
	if a.random.IntN(150) == 0 {
		pause = 1100 * time.Millisecond
	}
	time.Sleep(pause)
}

func (a *author) sync(ctx context.Context, w *eventlog.Writer) error {
	if err := w.Sync(ctx); err != nil {
		return err
	}
	a.note(func() { a.synced = w.Head().Seq })
	return nil
}

// tell is a run: one that every dialect can tell, or one that talks a lot.
func (a *author) tell(run string) ([]event.Event, error) {
	sc, ok := scenarios.Named(a.plan[run])
	if !ok {
		return a.chatter(run), nil
	}
	fold, err := a.fold(a.head())
	if err != nil {
		return nil, err
	}
	var list []event.Event
	for _, step := range sc.Steps(scenarios.Invoke{RunID: run, TraceID: "t", CommandID: run + ".invoke", Agent: "demo", Fold: fold, Big: 20 << 10,
		Messages: []event.InputMessage{{MessageID: run + "_in", Role: event.RoleUser, Parts: []event.Part{event.TextPart(a.text())}}}}) {
		list = append(list, step.Event)
	}
	return list, nil
}

// sprinkled has steering, custom and internal events among those of a run, sometimes
// so many internal ones that cursors have to be moved past them, and commands that come
// too late behind it.
func (a *author) sprinkled(run string, list []event.Event) []event.Event {
	for range a.random.IntN(4) {
		more := []event.Event{of(run, event.Custom, event.CustomData{Name: "n", Value: event.Encode(a.text())})}
		switch a.random.IntN(4) {
		case 0:
			parts := []event.Part{event.TextPart(a.text())}
			more = []event.Event{of(run, event.MessageCompleted, event.MessageCompletedData{MessageID: event.NewID("msg"), Role: event.RoleUser, Parts: parts, SHA256: event.TextHash(parts)})}
		case 1:
			more = slices.Repeat([]event.Event{hiddenEvent()}, 1+a.random.IntN(150))
		}
		end := slices.IndexFunc(list, func(e event.Event) bool { return e.RunID == run && e.Type.Terminal() })
		list = slices.Insert(list, 1+a.random.IntN(end), more...)
	}
	for range a.random.IntN(3) {
		late := of(run, event.CommandIgnored, event.CommandIgnoredData{CommandID: event.NewID("cmd"), Kind: string(event.Steer), Reason: "the run is not going on"})
		late.Internal = true
		list = append(list, late)
	}
	return list
}

// chatter is a run of many small and a few large deltas, in attempts that are taken back.
func (a *author) chatter(run string) []event.Event {
	list := []event.Event{started(run)}
	add := func(t event.Type, data any) { list = append(list, of(run, t, data)) }
	for i := range 1 + a.random.IntN(4) {
		msg, said, thought := fmt.Sprint(run, "_m", i), "", ""
		add(event.StepStarted, event.StepStartedData{Step: i + 1})
		add(event.MessageStarted, event.MessageStartedData{MessageID: msg, Role: event.RoleAssistant})
		add(event.ReasoningStarted, event.ReasoningStartedData{ReasoningID: msg + "r"})
		for _, piece := range a.pieces() {
			thought += piece
			add(event.ReasoningDelta, event.ReasoningDeltaData{ReasoningID: msg + "r", Delta: piece})
		}
		add(event.ReasoningCompleted, event.ReasoningCompletedData{ReasoningID: msg + "r", Text: thought})
		for _, piece := range a.pieces() {
			said += piece
			add(event.TextDelta, event.TextDeltaData{MessageID: msg, Delta: piece})
		}
		if a.random.IntN(3) == 0 {
			add(event.MessageDiscarded, event.MessageDiscardedData{MessageID: msg, Reason: "retry", Retry: i})
			continue
		}
		parts := []event.Part{{Type: event.PartReasoning, ReasoningID: msg + "r", Text: thought}, event.TextPart(said)}
		add(event.MessageCompleted, event.MessageCompletedData{MessageID: msg, Role: event.RoleAssistant, Parts: parts, SHA256: event.TextHash(parts)})
		add(event.StepCompleted, event.StepCompletedData{Step: i + 1, FinishReason: event.FinishStop})
	}
	return append(list, completed(run))
}

var oddText = "a\u2028b\u0085c\r\nd\n\ndata: x\nid: 9\t\"é\\👩‍👩‍👧\x00\ufeff北京</script>"

// text is of any size and cut anywhere, letters included.
func (a *author) text() string {
	from := a.random.IntN(len(oddText))
	text := strings.ToValidUTF8(oddText[from:from+a.random.IntN(len(oddText)-from)], "\ufffd")
	switch a.random.IntN(60) {
	case 0:
		text += strings.Repeat("x", a.random.IntN(9000))
	case 1:
		if a.giants > 0 {
			a.giants--
			text += strings.Repeat("y", 150<<10)
		}
	}
	return text
}

func (a *author) pieces() (list []string) {
	for range a.random.IntN(30) {
		list = append(list, a.text())
	}
	return list
}
