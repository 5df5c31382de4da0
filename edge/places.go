package edge

import (
	"context"
	"sync"

	"github.com/runlog-dev/runlog/eventlog"
)

// places remembers entries of the runs index, so that a client that comes back to a run
// is served without asking the log where the run is. Entries do not change once the run
// is accepted. Safe for concurrent use.
type places struct {
	mu sync.Mutex
	of map[runName]eventlog.RunRef
}

type runName struct{ tenant, run string }

// maxPlaces bounds the memory of places, to about 4 MB.
const maxPlaces = 8192

// findRef is Log.FindRun, and asks the log once for each accepted run.
func (s *Server) findRef(ctx context.Context, tenant, runID string) (eventlog.RunRef, error) {
	at := runName{tenant, runID}
	if ref, ok := s.places.get(at); ok {
		return ref, nil
	}
	ref, err := s.Log.FindRun(ctx, tenant, runID)
	if err == nil && ref.Accepted {
		s.places.put(at, ref)
	}
	return ref, err
}

func (p *places) get(at runName) (ref eventlog.RunRef, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ref, ok = p.of[at]
	return ref, ok
}

// put forgets any other entry if there are too many: it can be looked up again.
func (p *places) put(at runName, ref eventlog.RunRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[runName]eventlog.RunRef{}
	}
	for other := range p.of {
		if len(p.of) < maxPlaces {
			break
		}
		delete(p.of, other)
	}
	p.of[at] = ref
}
