package recorder_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"

	"github.com/runlog-dev/runlog/catalog/catalogtest"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// memory is a log of several partitions, with the faults that a real one has.
type memory struct {
	mu     sync.Mutex
	grown  chan struct{} // closed, and made anew, when frames come
	frames [][]eventlog.Frame
	broken map[uint64]bool // positions of partition 0 that cannot be read
	breaks int             // reading fails this often, after some frames
	reads  int             // calls of Frames
}

func newMemory(partitions int) *memory {
	return &memory{grown: make(chan struct{}), frames: make([][]eventlog.Frame, partitions), broken: map[uint64]bool{}}
}

// add stores a log as frames of one to four events of a session each.
func (m *memory) add(entries []catalogtest.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rng := rand.New(rand.NewPCG(uint64(len(entries)), 4))
	for len(entries) > 0 {
		n, first := 1, entries[0]
		for n < len(entries) && n < 4 && entries[n].Event.SessionID == first.Event.SessionID && rng.IntN(3) > 0 {
			n++
		}
		m.store(entries[:n])
		entries = entries[n:]
	}
	close(m.grown)
	m.grown = make(chan struct{})
}

func (m *memory) store(entries []catalogtest.Entry) {
	key := eventlog.Key{Tenant: entries[0].Tenant, Session: entries[0].Event.SessionID}
	p := int(key.Session[len(key.Session)-1]) % len(m.frames)
	f := eventlog.Frame{Key: key, Pos: m.end(p) + 1}
	for _, e := range entries {
		f.Data = e.Event.AppendLine(f.Data)
	}
	m.frames[p] = append(m.frames[p], f)
}

// addLine stores a frame of one line as it is.
func (m *memory) addLine(tenant, session, line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frames[0] = append(m.frames[0], eventlog.Frame{Key: eventlog.Key{Tenant: tenant, Session: session}, Pos: m.end(0) + 1, Data: []byte(line + "\n")})
}

func (m *memory) end(p int) uint64 {
	if n := len(m.frames[p]); n > 0 {
		return m.frames[p][n-1].Pos
	}
	return 0
}

func (m *memory) Partitions() int { return len(m.frames) }

func (m *memory) End(_ context.Context, p int) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.end(p), nil
}

var errCut = errors.New("the line was cut")

func (m *memory) Frames(ctx context.Context, p int, after uint64) iter.Seq2[eventlog.Frame, error] {
	m.mu.Lock()
	m.reads++
	m.mu.Unlock()
	return func(yield func(eventlog.Frame, error) bool) {
		for ctx.Err() == nil {
			batch, grown, cut := m.next(p, after)
			for _, f := range batch {
				if err := m.fault(p, f); !yield(f, err) || err != nil {
					return
				}
				after = f.Pos
			}
			if cut {
				yield(eventlog.Frame{}, errCut)
				return
			}
			if len(batch) > 0 {
				continue
			}
			select {
			case <-grown:
			case <-ctx.Done():
			}
		}
	}
}

func (m *memory) fault(p int, f eventlog.Frame) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p == 0 && m.broken[f.Pos] {
		return errors.New("no header")
	}
	return nil
}

// next returns some frames after a position, what is closed when more come, and
// whether the line is cut then.
func (m *memory) next(p int, after uint64) (batch []eventlog.Frame, grown <-chan struct{}, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.frames[p] {
		if f.Pos > after && len(batch) < 20 {
			batch = append(batch, f)
		}
	}
	if m.breaks > 0 && len(batch) > 0 {
		m.breaks--
		cut = true
	}
	return batch, m.grown, cut
}

// slice cuts a log's entries into n parts.
func slice(log catalogtest.Log, n int) [][]catalogtest.Entry {
	parts := make([][]catalogtest.Entry, n)
	for i := range parts {
		parts[i] = log.Entries[i*len(log.Entries)/n : (i+1)*len(log.Entries)/n]
	}
	return parts
}

func started(session string, seq event.Seq) event.Event {
	e := event.New(event.RunStarted, event.RunStartedData{Agent: "demo"})
	e.Seq, e.SessionID, e.ID, e.RunID = seq, session, session+"-1", "run-"+session
	return e
}
