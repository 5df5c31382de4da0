package catalogtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/event"
)

func testFold(t *testing.T, open func(testing.TB) *catalog.DB) {
	db := open(t)
	for seed := range uint64(3) {
		log := NewLog(seed, 1, 100)
		fold := event.NewSession("")
		for _, e := range log.Entries {
			fold.SessionID = e.Event.SessionID
			must(t, fold.Apply(e.Event))
			apply(t, db, e.Tenant, e.Event)
			if e.Event.Seq%7 == 0 {
				sameAsFold(t, db, e.Tenant, fold)
			}
		}
		sameAsFold(t, db, log.Entries[0].Tenant, fold)
	}
}

// sameAsFold compares all rows of a session with the fold of its events.
func sameAsFold(t *testing.T, db *catalog.DB, tenant string, fold *event.Session) {
	t.Helper()
	ctx := within(t)
	s := get(db.Session(ctx, tenant, fold.SessionID))(t)
	want := fmt.Sprint(fold.Agent, fold.CreatedAt, string(fold.Metadata))
	if got := fmt.Sprint(s.Agent, s.CreatedAt, string(s.Metadata)); got != want || s.Seq > fold.Seq {
		t.Errorf("session is %+v, want %s up to %d", s, want, fold.Seq)
	}
	sameRuns(t, db, tenant, fold)
	sameCalls(t, db, tenant, fold)
	rows := get(db.Artifacts(ctx, tenant, fold.SessionID))(t)
	var got, wanted []string
	for _, a := range rows {
		got = append(got, artifactLine(a.Artifact))
	}
	for _, a := range fold.Artifacts {
		wanted = append(wanted, artifactLine(*a))
	}
	sameLines(t, "artifacts", fold.Seq, got, wanted)
}

func artifactLine(a event.Artifact) string {
	if a.Status != event.Completed {
		a.Bytes = 0 // progress is not projected
	}
	return a.CallID + string(event.Encode(a))
}

func sameRuns(t *testing.T, db *catalog.DB, tenant string, fold *event.Session) {
	t.Helper()
	ctx := within(t)
	if page := get(db.Runs(ctx, tenant, catalog.Filter{Session: fold.SessionID, Limit: 500}))(t); len(page.Runs) != len(fold.Runs) {
		t.Errorf("%d runs at %d, want %d", len(page.Runs), fold.Seq, len(fold.Runs))
	}
	var got, want []string
	for _, r := range fold.Runs {
		row := get(db.Run(ctx, tenant, r.RunID))(t)
		plain := *r
		plain.Book = nil
		got, want = append(got, string(event.Encode(row.Run))), append(want, string(event.Encode(plain)))
	}
	sameLines(t, "runs", fold.Seq, got, want)
}

func sameCalls(t *testing.T, db *catalog.DB, tenant string, fold *event.Session) {
	t.Helper()
	var got, want []string
	for _, r := range fold.Runs {
		for _, c := range get(db.ToolCalls(within(t), tenant, r.RunID))(t) {
			got = append(got, fmt.Sprint(c.CallID, c.RunID, c.MessageID, c.Name, c.Executor, c.Status, c.Attempt, c.Code,
				c.Message, c.Outcome, c.Truncated, c.Internal, c.ArtifactID))
		}
		for _, c := range fold.ToolCalls {
			if c.RunID != r.RunID {
				continue
			}
			artifact := ""
			if c.Artifact != nil {
				artifact = c.Artifact.ArtifactID
			}
			want = append(want, fmt.Sprint(c.CallID, c.RunID, c.MessageID, c.Name, c.Executor, c.Status, c.Attempt, c.Code,
				c.Message, c.Outcome, c.Truncated, c.Internal, artifact))
		}
	}
	sameLines(t, "tool calls", fold.Seq, got, want)
}

func sameLines(t *testing.T, what string, at event.Seq, got, want []string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Fatalf("%s at %d are\n%q\nwant\n%q", what, at, got, want)
	}
}

func testGolden(t *testing.T, open func(testing.TB) *catalog.DB) {
	db := open(t)
	golden := get(os.ReadFile("../event/testdata/events.ndjson"))(t)
	fold := event.NewSession("ses_01k9example")
	var events []event.Event
	for line := range bytes.Lines(golden) {
		e, err := event.Decode(line)
		must(t, err)
		must(t, fold.Apply(e))
		events = append(events, e)
	}
	apply(t, db, "acme", events...)
	sameAsFold(t, db, "acme", fold)
	run := get(db.Run(within(t), "acme", "run_01k9example"))(t)
	if run.Status != event.Completed || run.Usage.InputTokens != 132 || run.Seq != 42 || run.SessionID != fold.SessionID {
		t.Errorf("golden run is %+v", run)
	}
}

func testRepeats(t *testing.T, open func(testing.TB) *catalog.DB) {
	log := NewLog(7, 5, 90)
	want := inOneGo(t, open(t), log)
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 2))
		db := open(t)
		for at := 0; at < len(log.Entries); {
			from := max(0, at-rng.IntN(120)) // as after a restart from an older position
			at = min(len(log.Entries), from+1+rng.IntN(250))
			applyAll(t, db, log.Entries[from:at])
		}
		applyAll(t, db, log.Entries)
		DumpOf(t, db, log).Equal(t, want)
	}
}

// inOneGo is what all other ways to apply a log have to end in.
func inOneGo(t testing.TB, db *catalog.DB, log Log) Dump {
	t.Helper()
	applyAll(t, db, log.Entries)
	return DumpOf(t, db, log)
}

func applyAll(t testing.TB, db *catalog.DB, entries []Entry) {
	t.Helper()
	for _, b := range Grouped(entries) {
		apply(t, db, b.Tenant, b.Events...)
	}
}

func testConcurrent(t *testing.T, open func(testing.TB) *catalog.DB) {
	log := NewLog(8, 4, 60)
	want := inOneGo(t, open(t), log)
	db := open(t)
	var group sync.WaitGroup
	for seed := range uint64(3) {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 3))
			for at := 0; at < len(log.Entries); {
				end := min(len(log.Entries), at+1+rng.IntN(60))
				for _, b := range Grouped(log.Entries[at:end]) {
					if err := db.Apply(within(t), b.Tenant, b.Events); err != nil {
						t.Error(err)
						return
					}
				}
				at = end
			}
		})
	}
	group.Wait()
	DumpOf(t, db, log).Equal(t, want)
}

func testOlder(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, log := open(t), NewLog(9, 1, 80)
	want := inOneGo(t, db, log)
	for i := len(log.Entries) - 1; i >= 0; i-- {
		apply(t, db, log.Entries[i].Tenant, log.Entries[i].Event)
	}
	DumpOf(t, db, log).Equal(t, want)
}

// hostile are texts that one database or the other refuses, or that would not
// fit an index.
var hostile = []string{"a\x00b", "\xff\xfe", "\xed\xa0\x80", "\ufffe", strings.Repeat("x", 100_000), strings.Repeat("é\x00", 9_000), "'; drop table runs; --", "\u2028"}

func testHostileText(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	for i, text := range hostile {
		tenant, session := fmt.Sprintf("t%d-%s", i, text), "s"+text
		events := hostileLog(session, text)
		apply(t, db, tenant, events...)
		apply(t, db, tenant, events...)
		run := get(db.Run(ctx, tenant, "r"+text))(t)
		if run.Status != event.Failed || run.Seq != event.Seq(len(events)) {
			t.Errorf("with %.20q the run is %+v", text, run)
		}
		s := get(db.Session(ctx, tenant, session))(t)
		if !json.Valid(s.Metadata) {
			t.Errorf("metadata became %s", s.Metadata)
		}
		if calls := get(db.ToolCalls(ctx, tenant, "r"+text))(t); len(calls) != 2 {
			t.Errorf("with %.20q there are %d calls, want 2: ids that differ only at the end are one", text, len(calls))
		}
	}
}

// hostileLog has text in every place that is projected.
func hostileLog(session, text string) []event.Event {
	l := &lines{session: session, run: "r" + text, trace: "t" + text}
	l.add(event.SessionCreated, map[string]any{"agent": text, "metadata": json.RawMessage(`{"\u0000":"\ud800","n":1e999,"ok":"\ud83c\udf24","b":"\\u0000"}`)})
	l.add(event.RunStarted, map[string]any{"agent": text, "parent_run_id": text, "parent_call_id": text})
	for _, call := range []string{text + "1", text + "2"} {
		l.add(event.ToolStarted, map[string]any{"call_id": call, "name": text, "message_id": text, "executor": text})
		l.add(event.ToolFailed, map[string]any{"call_id": call, "name": text, "code": text, "message": text, "outcome": text, "artifact": map[string]any{"artifact_id": text}})
	}
	l.add(event.ArtifactStarted, map[string]any{"artifact_id": text, "call_id": text, "name": text, "media_type": text})
	l.add(event.ArtifactCompleted, map[string]any{"artifact_id": text, "name": text, "sha256": text, "url": text, "media_type": text, "bytes": int64(1) << 62})
	l.add(event.RunStatus, map[string]any{"status": text})
	l.add(event.RunCancelled, map[string]any{"by": text, "reason": text})
	l.add(event.RunCompleted, map[string]any{"finish_reason": text, "output": map[string]any{"message_id": text}, "usage": map[string]any{"cost_usd": 1e308}})
	l.add(event.RunFailed, map[string]any{"code": text, "message": text})
	return l.events
}

// lines writes a session by hand.
type lines struct {
	session, run, trace string
	events              []event.Event
}

func (l *lines) add(t event.Type, data any) {
	e := event.New(t, data)
	e.Seq = event.Seq(len(l.events) + 1)
	e.SessionID, e.RunID, e.TraceID = l.session, l.run, l.trace
	l.events = append(l.events, e)
}

func testBrokenData(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	l := &lines{session: "s", run: "r"}
	l.add(event.SessionCreated, map[string]any{"agent": 5})
	l.add(event.RunStarted, map[string]any{"agent": "demo"})
	l.add(event.ToolStarted, map[string]any{"call_id": 5, "name": []int{1}})
	l.add(event.StepCompleted, map[string]any{"usage": "many"})
	l.add(event.RunFailed, map[string]any{"code": "x"})
	l.events[3].Data = []byte(`{"usage":`)
	apply(t, db, "acme", l.events...)
	if run := get(db.Run(ctx, "acme", "r"))(t); run.Status != event.Failed || run.Seq != 5 {
		t.Errorf("behind broken events the run is %+v", run)
	}
}

func testOtherTypes(t *testing.T, open func(testing.TB) *catalog.DB) {
	db := open(t)
	l := &lines{session: "s", run: "r"}
	l.add("type.of.tomorrow", map[string]any{"agent": 5})
	l.add(event.TextDelta, map[string]any{"delta": "x"})
	apply(t, db, "acme", l.events...)
	apply(t, db, "acme")
	_, err := db.Session(within(t), "acme", "s")
	wantErr(t, err, catalog.ErrNotFound)
}
