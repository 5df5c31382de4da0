package terminal

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/clients/go/edgetest"
	"github.com/runlog-dev/runlog/event"
)

// A glass is a terminal of so many columns, as far as the screen uses one.
type glass struct {
	width    int
	rows     [][]rune
	row, col int
	noWrap   bool
}

func (g *glass) String() string {
	var b strings.Builder
	for _, row := range g.rows {
		b.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func (g *glass) show(t *testing.T, out string) {
	t.Helper()
	runes := []rune(out)
	for len(runes) > 0 {
		if runes[0] != '\x1b' {
			g.put(runes[0])
			runes = runes[1:]
			continue
		}
		end := slices.IndexFunc(runes, func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' })
		g.control(t, string(runes[1:end+1]))
		runes = runes[end+1:]
	}
}

func (g *glass) control(t *testing.T, seq string) {
	t.Helper()
	switch {
	case seq == "[?7l", seq == "[?7h":
		g.noWrap = seq == "[?7l"
	case strings.HasSuffix(seq, "m"):
	case seq == "[J":
		g.rows = g.rows[:min(g.row, len(g.rows))]
		g.cell()
	case strings.HasSuffix(seq, "A"):
		n, err := strconv.Atoi(seq[1 : len(seq)-1])
		if g.row -= n; err != nil || g.row < 0 {
			t.Fatalf("ESC%s moves above the top", seq)
		}
	default:
		t.Fatalf("unexpected ESC%s", seq)
	}
}

func (g *glass) put(r rune) {
	switch r {
	case '\n':
		g.row, g.col = g.row+1, 0
	case '\r':
		g.col = 0
	default:
		if g.col >= g.width {
			if g.noWrap {
				return
			}
			g.row, g.col = g.row+1, 0
		}
		*g.cell() = r
		g.col++
	}
}

func (g *glass) cell() *rune {
	for len(g.rows) <= g.row {
		g.rows = append(g.rows, nil)
	}
	for len(g.rows[g.row]) <= g.col {
		g.rows[g.row] = append(g.rows[g.row], ' ')
	}
	return &g.rows[g.row][g.col]
}

// What is left on a terminal has no trace of what was redrawn, however narrow.
func TestWhatTheTerminalShows(t *testing.T) {
	for _, width := range []int{200, 24} {
		edge := goldenEdge(t)
		s := newSession(edge)
		s.env.Terminal = true
		s.run(t, "attach", edge.RunID)
		g := &glass{width: width}
		g.show(t, strings.ReplaceAll(s.stdout.String(), edge.URL, "http://edge"))
		golden(t, edge, fmt.Sprintf("screen_%d", width), g.String())
	}
}

// viewOf shows events without a server.
func viewOf(terminal bool, events []event.Event) (*session, *textView) {
	s := newSession(&edgetest.Edge{Server: &httptest.Server{URL: "http://edge"}})
	s.env.Terminal = terminal
	v := s.env.textView((&flagSet{env: s.env}).client(), true)
	for _, e := range events {
		v.event(e)
	}
	return s, v
}

// After any event a note to the same terminal leaves the block below it, and the
// finished lines are those of a viewer that was never disturbed.
func TestNotesDoNotDisturb(t *testing.T) {
	events := edgetest.Golden(t)
	for n := range events {
		s, v := viewOf(true, events[:n])
		v.err = &s.stdout
		v.note("NOTE")
		v.tick()
		for _, e := range events[n:] {
			v.event(e)
		}
		whole, _ := viewOf(true, events)
		a, b := &glass{width: 200}, &glass{width: 200}
		a.show(t, s.stdout.String())
		b.show(t, whole.stdout.String())
		squeeze := strings.NewReplacer("NOTE\n", "", "\n", "", " ", "") // a note may break a line
		if squeeze.Replace(a.String()) != squeeze.Replace(b.String()) || !strings.Contains(a.String(), "\nNOTE\n") && n > 2 {
			t.Fatalf("disturbed after event %d:\n%s\nundisturbed:\n%s", n, a, b)
		}
	}
}

func TestManyToolsFitTheTerminal(t *testing.T) {
	var events []event.Event
	for i := range 30 {
		events = append(events, event.Event{V: 1, ID: "x", Type: event.ToolStarted, Data: event.Encode(event.ToolStartedData{CallID: fmt.Sprint("call_", i), Name: "grep"})})
	}
	s, _ := viewOf(true, events)
	g := &glass{width: 80}
	g.show(t, s.stdout.String())
	if rows := strings.Count(g.String(), "\n"); rows != maxBlock || !strings.Contains(g.String(), "… and 23 more") {
		t.Errorf("%d rows:\n%s", rows, g)
	}
	if !strings.Contains(g.String(), "grep[call_0]") {
		t.Errorf("calls of one name cannot be told apart:\n%s", g)
	}
}

// A viewer that comes late sees each text at most once, and what it missed of a
// text only when the rest cannot be mistaken.
func TestLateViewers(t *testing.T) {
	events := edgetest.Golden(t)
	for n := range events {
		s, _ := viewOf(false, events[n:])
		out := s.stdout.String()
		for _, text := range []string{"in parallel.", "look. 🌤", "Note saved.", "tool weather: completed", "artifact note.md"} {
			if strings.Count(out, text) > 1 {
				t.Errorf("from event %d %q is shown twice:\n%s", n+1, text, out)
			}
		}
	}
}

// A model cannot write control sequences to the terminal by any field.
func TestNothingEscapes(t *testing.T) {
	const evil = `a\u001b]0;t\u0007\u001b[2J\u009b1Ab`
	for _, e := range edgetest.Golden(t) {
		for _, text := range []string{`"Two tools, "`, `"in parallel."`, `"weather"`, `"demo"`, `"note.md"`, `"text/markdown"`, `"sunny, 5-12 °C"`,
			`"asking the station"`, `"Let me "`, `"model_stream_broken"`, `"Weather in 北京, and save a note."`, `"/artifacts/art_1"`, `"stop"`, `"call_1"`} {
			evilEvent := e
			evilEvent.Data = []byte(strings.ReplaceAll(string(e.Data), text, `"`+evil+`"`))
			s, _ := viewOf(true, []event.Event{evilEvent})
			if out := s.stdout.String(); strings.Contains(out, "\x1b]") || strings.Contains(out, "\x1b[2J") || strings.Contains(out, "\u009b") || strings.Contains(out, "\a") {
				t.Errorf("%s with %s gave %q", e.Type, text, out)
			}
		}
	}
}
