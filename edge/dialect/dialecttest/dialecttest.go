// Package dialecttest is the suite of every dialect: it encodes all scenarios,
// keeps the transcripts under the caller's testdata, and checks what no dialect
// may do. Renew transcripts with -update and read the difference.
package dialecttest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

var update = flag.Bool("update", false, "write transcripts instead of comparing them")

// Options of Run; the zero value works.
type Options struct {
	Variant string // a folder of testdata, for a dialect with settings
	Plain   bool   // data may be something else than a JSON object: [DONE]
	// Mine, if set, says which events a viewer of this variant is shown.
	Mine func(event.Event) bool
}

// Run encodes every scenario for clients and compares what comes out with the
// transcripts.
func Run(t *testing.T, d dialect.Dialect, o Options) {
	t.Helper()
	for _, sc := range scenarios.All() {
		t.Run(sc.Name, func(t *testing.T) {
			got := transcript(t, d, sc, o)
			path := filepath.Join("testdata", o.Variant, sc.Name+".txt")
			if *update {
				write(t, path, got)
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("no transcript: run the test with -update and read it: %v", err)
			}
			if diff := firstDifference(string(want), got); diff != "" {
				t.Errorf("%s: %s", path, diff)
			}
		})
	}
	t.Run("every type", func(t *testing.T) { decided(t, d) })
}

// A Sent is a wire message with its id.
type Sent struct {
	ID string
	dialect.Message
	Of event.Event
}

// Encode returns what a client of the whole log reads.
func Encode(t testing.TB, d dialect.Dialect, log []event.Event, mine func(event.Event) bool) []Sent {
	t.Helper()
	var all []Sent
	fold := event.NewSession(log[0].SessionID)
	follows, again := begin(d), begin(d)
	for _, e := range log {
		line := bytes.TrimSuffix(e.AppendLine(nil), []byte("\n"))
		stored, err := event.Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case mine != nil && !mine(stored):
		case follows != nil:
			all = append(all, encodeNext(t, follows, again, stored, line)...)
		default:
			all = append(all, encodeOne(t, d, stored, line, fold)...)
		}
		if err := fold.Apply(stored); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// encodeOne encodes an event twice: a dialect is a pure function.
func encodeOne(t testing.TB, d dialect.Dialect, e event.Event, line []byte, fold *event.Session) []Sent {
	t.Helper()
	before := func() (*event.Session, error) { return fold, nil }
	state := string(fold.Encode())
	first, err := dialect.Encode(d, e, line, dialect.Client, before)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := dialect.Encode(d, e, line, dialect.Client, before)
	equal(t, e, first, again)
	if string(fold.Encode()) != state {
		t.Errorf("encoding event %d (%s) changed the session", e.Seq, e.Type)
	}
	return sent(e, first)
}

func begin(d dialect.Dialect) dialect.Encoder {
	if f, ok := d.(dialect.Following); ok {
		return f.Begin()
	}
	return nil
}

// encodeNext encodes an event with two encoders that have seen the same.
func encodeNext(t testing.TB, one, other dialect.Encoder, e event.Event, line []byte) []Sent {
	t.Helper()
	first := one.Next(e, line, dialect.Client)
	equal(t, e, first, other.Next(e, line, dialect.Client))
	return sent(e, first)
}

func equal(t testing.TB, e event.Event, one, other []dialect.Message) {
	t.Helper()
	if !slices.EqualFunc(one, other, func(a, b dialect.Message) bool {
		return a.Event == b.Event && a.Bare == b.Bare && bytes.Equal(a.Data, b.Data)
	}) {
		t.Errorf("event %d (%s) encodes to different messages: %v / %v", e.Seq, e.Type, one, other)
	}
}

func sent(e event.Event, messages []dialect.Message) []Sent {
	list := make([]Sent, len(messages))
	for i, m := range messages {
		list[i] = Sent{ID: fmt.Sprintf("%d.%d", e.Seq, i), Message: m, Of: e}
	}
	if n := len(list); n > 0 {
		list[n-1].ID = e.Seq.String()
	}
	return list
}

func transcript(t *testing.T, d dialect.Dialect, sc scenarios.Scenario, o Options) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s in the dialect %s: id, event if it has a name, data.\n", sc.About, sc.Name, d.Name())
	of := event.Seq(0)
	for _, m := range Encode(t, d, sc.Log(), o.Mine) {
		check(t, m, o)
		if m.Of.Seq != of {
			of = m.Of.Seq
			fmt.Fprintf(&b, "\n-- %s\n", m.Of.Type)
		}
		fmt.Fprintf(&b, "%s\t", m.ID)
		if m.Event != "" {
			fmt.Fprintf(&b, "%s\t", m.Event)
		}
		fmt.Fprintf(&b, "%s\n", m.Data)
	}
	return b.String()
}

// check holds a message to what every transport needs.
func check(t *testing.T, m Sent, o Options) {
	t.Helper()
	if !utf8.Valid(m.Data) || bytes.ContainsAny(m.Data, "\n\r\u2028\u2029") {
		t.Errorf("message %s is not one line of UTF-8: %q", m.ID, m.Data)
	}
	var object map[string]json.RawMessage
	err := json.Unmarshal(m.Data, &object)
	if err != nil && !o.Plain {
		t.Errorf("message %s is not a JSON object: %v: %q", m.ID, err, m.Data)
	}
	if strings.ContainsAny(m.Event, "\n\r") || m.Event == "error" && m.Of.Type != event.RunFailed && m.Of.Type != event.RunCancelled {
		t.Errorf("message %s has the name %q", m.ID, m.Event)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func firstDifference(want, got string) string {
	if want == got {
		return ""
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\n got  %.600s\n want %.600s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// decided fails for a type of event that nobody thought of: each is told by some
// message, is listed as lost, or is not for clients.
func decided(t *testing.T, d dialect.Dialect) {
	t.Helper()
	seen, shown := told(t, d), public()
	lost := map[event.Type]string{}
	if l, ok := d.(dialect.Lossy); ok {
		lost = l.Lost()
	}
	for _, typ := range event.Types {
		switch why, isLost := lost[typ]; {
		case isLost && seen[typ]:
			t.Errorf("%s is told, and listed as lost (%s)", typ, why)
		case isLost && why == "":
			t.Errorf("%s is lost without a reason", typ)
		case !isLost && !seen[typ] && shown[typ]:
			t.Errorf("nobody decided about %s: tell it, or list it in Lost with the reason", typ)
		}
	}
	for typ := range lost {
		if !slices.Contains(event.Types, typ) {
			t.Errorf("%s is listed as lost, but there is no such type", typ)
		}
	}
}

// public are the types of which some scenario has an event that is not internal.
func public() map[event.Type]bool {
	types := map[event.Type]bool{}
	for _, sc := range scenarios.All() {
		for _, e := range sc.Log() {
			types[e.Type] = types[e.Type] || !e.Internal
		}
	}
	return types
}

// told are the types whose events lead to a message in some scenario.
func told(t testing.TB, d dialect.Dialect) map[event.Type]bool {
	t.Helper()
	types := map[event.Type]bool{}
	for _, sc := range scenarios.All() {
		for _, m := range Encode(t, d, sc.Log(), nil) {
			types[m.Of.Type] = true
		}
	}
	return types
}
