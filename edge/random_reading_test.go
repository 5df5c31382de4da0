package edge_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// A reading is what a client of one run or session has got, over any number of
// connections, and says at once what is wrong with it: it knows from the session's
// chronicle and the dialect's pure encoding what has to come next.
type reading struct {
	c        *chronicle
	seen     *tally
	run      string // empty: the session
	dialect  dialect.Dialect
	audience dialect.Audience
	catchup  stream.Catchup
	socket   bool // data that is no JSON comes as a string

	after   string          // the client's cursor
	at      stream.Position // the same
	due     []told          // what comes next, as far as it was looked at
	through event.Seq       // so far
	loose   []message       // without an id: the beginning of a snapshot
	first   bool            // nothing has come on this connection
	begins  bool            // it has to begin with a snapshot
	lost    bool            // it has to begin with a reset
	history event.Seq       // what was in the log when it began

	encoder dialect.Encoder
	over    bool           // the dialect ends with its snapshot
	before  *event.Session // for dialects that fold
	clean   *event.Session // fold of what the client may see
	state   *event.Session // fold of what it has got
}

// A tally counts what clients were told, in all: what never came was not attacked.
type tally struct{ events, merged, moved, snapshots, resets, ends, histories, cuts atomic.Int64 }

func (t *tally) String() string {
	return fmt.Sprintf("%d events, %d merged, %d moved cursors, %d snapshots, %d resets, %d proper ends, %d histories, %d other ends",
		t.events.Load(), t.merged.Load(), t.moved.Load(), t.snapshots.Load(), t.resets.Load(), t.ends.Load(), t.histories.Load(), t.cuts.Load())
}

// told is a message that a client has to get.
type told struct {
	at stream.Position
	dialect.Message
	of event.Event
}

// from has the client begin behind an event, of which it is not asked whether it has it.
func (r *reading) from(seq event.Seq) error {
	r.at = stream.Position{Seq: seq, Epoch: r.c.epoch(seq)}
	r.after = r.at.String()
	return r.restart(seq)
}

// fromLost has the client begin behind an event that a restore has lost, or behind one of
// that event's first messages.
func (r *reading) fromLost(e event.Event, message int) error {
	at := stream.Position{Seq: e.Seq, Epoch: e.Epoch()}
	if message > 0 {
		at.Seq, at.Sub = e.Seq-1, int32(message)
	}
	r.at, r.after, r.lost = stream.Position{}, at.String(), true
	return r.restart(0)
}

// turn goes on in another dialect, from the same position; it does not from inside an
// event, which is another place there.
func (r *reading) turn(d dialect.Dialect, audience dialect.Audience, catchup stream.Catchup) error {
	r.dialect, r.audience, r.catchup, r.encoder, r.over = d, audience, catchup, nil, false
	r.before, r.clean = event.NewSession(r.c.key.Session), event.NewSession(r.c.key.Session)
	return r.restart(r.at.Seq)
}

func (r *reading) cursor() string { return r.after }

// connect begins another connection.
func (r *reading) connect(snapshot bool) {
	r.loose, r.first, r.begins, r.history = nil, true, snapshot, r.c.committed()
	if f, ok := r.dialect.(dialect.Following); ok { // tells its run from the start
		r.encoder, r.due, r.through, r.over = f.Begin(), nil, 0, false
	}
}

// take judges the next message.
func (r *reading) take(m message) error {
	if m.event == "heartbeat" || m.id == "" && strings.Contains(m.data, `"type":"heartbeat"`) {
		return r.alive(m)
	}
	if m.id == "" {
		r.loose = append(r.loose, m)
		return nil
	}
	at, err := stream.ParsePosition(m.id)
	if err != nil {
		return err
	}
	if err := r.look(seqOf(at)); err != nil {
		return err
	}
	if epoch := r.c.epoch(seqOf(at)); at.Epoch != epoch {
		return fmt.Errorf("%s is of epoch %s: %.300s", m.id, epoch, fmt.Sprint(m))
	}
	n, err := r.judge(m, at)
	if err != nil {
		return fmt.Errorf("after %s: %w: %.300s", r.at, err, fmt.Sprint(m))
	}
	r.due, r.at, r.after, r.loose, r.first, r.begins, r.lost = r.due[n:], at, m.id, nil, false, false, false
	return nil
}

// alive judges a heartbeat.
func (r *reading) alive(m message) error {
	var beat dialect.Heartbeat
	if json.Unmarshal([]byte(m.data), &beat) != nil || m.id != "" || beat.Head > r.c.head() {
		return fmt.Errorf("a heartbeat at %d: %+v", r.c.head(), m)
	}
	return nil
}

// seqOf is the event that a position is in or behind.
func seqOf(at stream.Position) event.Seq {
	if at.Sub > 0 {
		return at.Seq + 1
	}
	return at.Seq
}

func compare(a, b stream.Position) int {
	if a.Seq != b.Seq {
		return int(int64(a.Seq) - int64(b.Seq))
	}
	return int(a.Sub - b.Sub)
}

// judge returns how many of the messages that are due one stands for.
func (r *reading) judge(m message, at stream.Position) (n int, err error) {
	n = slices.IndexFunc(r.due, func(d told) bool { return compare(d.at, at) > 0 })
	if n < 0 {
		n = len(r.due)
	}
	whole := !r.begins && !r.lost && len(r.loose) == 0
	switch {
	case whole && n == 1 && r.same(m, r.due[0].Message):
		r.seen.events.Add(1)
		return n, r.apply(r.due[:1], r.due[0].of)
	case whole && n == 0 && m.event == "position" && compare(at, r.at) >= 0:
		r.seen.moved.Add(1)
		return n, nil
	case whole && n > 1 && r.catchup != "" && r.catchup != stream.Events:
		if err := r.merged(m, r.due[:n]); err == nil {
			r.seen.merged.Add(1)
			return n, nil
		}
	}
	if err := r.replaced(m, at); err != nil {
		next := "nothing"
		if len(r.due) > 0 {
			next = fmt.Sprintf("%s %s %.200s", r.due[0].at, r.due[0].Event, r.due[0].Data)
		}
		return 0, fmt.Errorf("due were %d, first of all %s; %w", n, next, err)
	}
	return 0, nil
}

// look encodes what the client is due through an event.
func (r *reading) look(seq event.Seq) error {
	if head := r.c.head(); seq > head {
		return fmt.Errorf("event %d of %d", seq, head)
	}
	for r.through < seq {
		r.through++
		e, line := r.c.at(r.through)
		if !r.c.within(e, r.run) {
			continue
		}
		list, err := r.encode(e, line)
		if err != nil {
			return err
		}
		for i, m := range list {
			at := stream.Position{Seq: e.Seq - 1, Sub: int32(i) + 1}
			if i == len(list)-1 {
				at = stream.Position{Seq: e.Seq, Epoch: e.Epoch()}
			}
			if compare(at, r.at) > 0 {
				r.due = append(r.due, told{at, m, e})
			}
		}
	}
	return nil
}

func (r *reading) encode(e event.Event, line []byte) ([]dialect.Message, error) {
	if r.encoder != nil {
		return r.encoder.Next(e, line, r.audience), nil
	}
	return dialect.Encode(r.dialect, e, line, r.audience, func() (*event.Session, error) {
		return r.before, r.c.advance(r.before, e.Seq-1)
	})
}

func (r *reading) same(m message, want dialect.Message) bool {
	data := want.Data
	if r.socket && !json.Valid(data) {
		data = event.Encode(string(data))
	}
	return m.event == want.Event && m.data == string(data)
}

// merged: one message stands for several deltas, or for those and what closes them.
func (r *reading) merged(m message, due []told) error {
	last := due[len(due)-1]
	text := ""
	for _, d := range due {
		piece, err := growthOf(d.of)
		if first, _ := growthOf(due[0].of); err != nil || piece.of != first.of || d.at.Sub > 0 {
			return fmt.Errorf("merges %s: %w", d.at, err)
		}
		if piece.closes && d.at != last.at {
			return fmt.Errorf("merges over %s", d.at)
		}
		text += piece.text
	}
	want := last.of
	if strings.HasSuffix(string(want.Type), "delta") {
		want.Data = replaceDelta(want.Data, text)
	} else if r.dialect.Name() != "native" {
		return errors.New("leaves deltas out")
	}
	list := r.dialect.Event(want, bytes.TrimSuffix(want.AppendLine(nil), []byte("\n")), r.audience)
	if len(list) != 1 || m.event != list[0].Event {
		return fmt.Errorf("should be one %s", want.Type)
	}
	var got, all map[string]any
	if err := errors.Join(json.Unmarshal([]byte(m.data), &got), json.Unmarshal(list[0].Data, &all)); err != nil {
		return err
	}
	if r.dialect.Name() == "native" {
		all["first_seq"] = float64(due[0].of.Seq)
	}
	if !reflect.DeepEqual(got, all) {
		return fmt.Errorf("merged should be %.300v", all)
	}
	return r.apply(due, want)
}

// A growthPiece is what an event adds to something, or that it closes it.
type growthPiece struct {
	of     string
	text   string
	closes bool
}

func growthOf(e event.Event) (growthPiece, error) {
	var data struct {
		MessageID   string `json:"message_id"`
		ReasoningID string `json:"reasoning_id"`
		CallID      string `json:"call_id"`
		Delta       string `json:"delta"`
	}
	if err := e.Into(&data); err != nil {
		return growthPiece{}, err
	}
	kind, _, _ := strings.Cut(strings.Replace(string(e.Type), "message.", "text.", 1), ".")
	return growthPiece{fmt.Sprint(kind, e.RunID, e.Internal, data.MessageID, data.ReasoningID, data.CallID), data.Delta, !strings.HasSuffix(string(e.Type), "delta")}, nil
}

func replaceDelta(data []byte, text string) []byte {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(data, &all) // it was read before
	all["delta"] = event.Encode(text)
	return event.Encode(all)
}

// apply folds what was due, and what came in its place, of the native dialect: that
// has to be the same.
func (r *reading) apply(due []told, got event.Event) error {
	if r.dialect.Name() != "native" {
		return nil
	}
	got.Seq = due[len(due)-1].of.Seq
	r.state.Seq = got.Seq - 1
	err := r.state.Apply(got)
	for _, d := range due {
		r.clean.Seq = d.of.Seq - 1
		err = errors.Join(err, r.clean.Apply(d.of))
	}
	if err == nil && len(due) > 1 && !bytes.Equal(r.state.EncodePublic(), r.clean.EncodePublic()) {
		err = fmt.Errorf("the folds differ: %s, want %s", r.state.EncodePublic(), r.clean.EncodePublic())
	}
	return err
}

// replaced: the message is the last of those that replace all that the client has.
func (r *reading) replaced(m message, at stream.Position) error {
	kinds, err := r.kinds()
	if err != nil {
		return err
	}
	if at.Sub > 0 || compare(at, r.at) < 0 {
		return errors.New("a snapshot goes back")
	}
	s, err := r.c.fold(at.Seq)
	if err != nil {
		return err
	}
	got := append(slices.Clone(r.loose), m)
	for _, kind := range kinds {
		snapshot := r.dialect.Snapshot
		if f, ok := r.dialect.(dialect.Following); ok {
			r.encoder = f.Begin()
			snapshot = r.encoder.Snapshot
		}
		want := snapshot(kind, s, r.audience)
		if !slices.EqualFunc(got, want, r.same) {
			err = errors.Join(err, fmt.Errorf("no %s of %d: got %.3000s\nwant %.3000s\n", kind, at.Seq, fmt.Sprint(got), fmt.Sprint(texts(want))))
			continue
		}
		if x, ok := r.encoder.(interface{ Over() bool }); ok && x.Over() {
			r.over = true
		}
		if kind == dialect.Reset {
			r.seen.resets.Add(1)
		} else {
			r.seen.snapshots.Add(1)
		}
		return r.restart(at.Seq)
	}
	return err
}

func texts(list []dialect.Message) (all []string) {
	for _, m := range list {
		all = append(all, m.Event+" "+string(m.Data))
	}
	return all
}

// kinds are the snapshots that may come now.
func (r *reading) kinds() (list []dialect.Kind, err error) {
	if r.lost {
		return []dialect.Kind{dialect.Reset}, nil
	}
	_, folds := r.dialect.(dialect.Folding)
	from, begins := r.at.Seq, event.Seq(0)
	if r.run != "" {
		begins, _ = r.c.begin(r.run)
	}
	if r.encoder != nil {
		from = 0
	}
	from = max(from, begins)
	if r.begins || r.first && r.catchup == stream.ToSnapshot && r.c.head() > r.at.Seq+256 {
		list = append(list, dialect.Snapshot)
	}
	if !r.begins && (r.c.mayBeGone(from, folds || r.run != "") || r.first && r.c.mayBeAnother(r.at)) {
		list = append(list, dialect.Reset)
	}
	if len(list) == 0 {
		err = errors.New("nothing is gone, nor was a snapshot asked for")
	}
	return list, err
}

// restart goes on after a snapshot.
func (r *reading) restart(seq event.Seq) error {
	r.due, r.through = nil, seq
	if r.before.Seq > seq { // it had looked ahead
		r.before = event.NewSession(r.c.key.Session)
	}
	for r.clean.Seq < seq {
		e, line := r.c.at(r.clean.Seq + 1)
		seen := r.c.within(e, r.run) && len(r.dialect.Event(e, line, r.audience)) > 0
		if r.dialect.Name() != "native" || !seen {
			r.clean.Seq++
		} else if err := r.clean.Apply(e); err != nil {
			return err
		}
	}
	r.state = r.clean.Clone()
	return nil
}

// mayEnd reports whether the stream may end properly: the client has all of its run;
// or, of a history, all that there was.
func (r *reading) mayEnd(history bool) error {
	end := r.c.end(r.run)
	switch {
	case r.over:
		return nil
	case history && (end == 0 || r.history < end):
		end = r.history
	case r.run == "" || end == 0:
		return errors.New("the stream ended, and the run goes on")
	}
	return r.lacks(end)
}

// lacks says what the client has not got of the events through one.
func (r *reading) lacks(through event.Seq) error {
	if err := r.look(through); err != nil {
		return err
	}
	if len(r.due) > 0 && seqOf(r.due[0].at) <= through {
		return fmt.Errorf("%s at %s is missing of %d", r.due[0].of.Type, r.due[0].at, through)
	}
	return nil
}

// complete reports whether a client has all there will be.
func (r *reading) complete() bool {
	through := r.c.head()
	if end := r.c.end(r.run); r.run != "" {
		through = end
	}
	return r.lacks(through) == nil
}
