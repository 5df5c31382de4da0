package stream

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// meddler is a client at whose n-th write something happens.
type meddler struct {
	*httptest.ResponseRecorder
	writes, at int
	happens    func()
}

func (m *meddler) Write(b []byte) (int, error) {
	if m.writes++; m.writes == m.at {
		m.happens()
	}
	return m.ResponseRecorder.Write(b)
}

// An event is appended at every moment between the subscription and the end of what
// was missed, and then the terminal one, or that alone: each comes once, and the
// stream ends.
func TestWhatIsAppendedAtAnyMomentComesOnce(t *testing.T) {
	const history = 8
	l := openLog(t)
	h := newHub(t, l, Options{PageBytes: 1}) // a write for each event of the log
	for i, late := range [][]event.Type{{event.TextDelta, event.RunCompleted}, {event.RunCompleted}} {
		for moment := range history + 1 {
			k := eventlog.Key{Tenant: "default", Session: fmt.Sprint(i, "-", moment)}
			w := l.Writer(k, eventlog.Head{})
			write(t, w, event.RunStarted)
			for range history - 1 {
				write(t, w, event.TextDelta)
			}
			body, writes := meddle(t, h, k, moment, func() { write(t, w, late...) })
			w.Close()
			for seq := 1; seq <= history+len(late); seq++ {
				if n := strings.Count(body, fmt.Sprintf(`"seq":%d,`, seq)); n != 1 {
					t.Errorf("%v at moment %d: event %d came %d times", late, moment, seq, n)
				}
			}
			if writes < history-1 { // the last two events are in the ring
				t.Errorf("only %d writes", writes)
			}
		}
	}
}

// meddle serves a run while something happens: before the viewer looks at the log,
// before it shows anything, or at one of its writes.
func meddle(t *testing.T, h *Hub, k eventlog.Key, moment int, happens func()) (body string, writes int) {
	t.Helper()
	v, err := h.View(t.Context(), Request{Key: k, RunID: "r", Dialect: native.Dialect{}, Transport: NDJSON{}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if moment == 0 {
		happens()
	}
	if _, err := v.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if moment == 1 {
		happens()
	}
	m := &meddler{ResponseRecorder: httptest.NewRecorder(), at: moment - 1, happens: happens}
	if err := v.Serve(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return m.Body.String(), m.writes
}
