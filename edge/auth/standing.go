package auth

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/runlog-dev/runlog/catalog"
)

// ErrRevoked: what a stream was opened with is not good any more.
var ErrRevoked = errors.New("what this was opened with is no longer valid: its API key was revoked, or keys are in use by now; connect again with a valid one")

// A Standing is how the catalog said that a key stands, and counts the streams that are
// open with it: requests and streams share one for each key. That of the empty key is of
// callers who need none.
type Standing struct {
	gate *Gate
	key  string

	// Guarded by the gate's mu.
	caller  Caller    // as of the last time that the key was valid; zero: it never was
	until   time.Time // when the catalog has to be asked again
	revoked bool      // for good
	streams int
	held    context.Context // of those streams; nil: there are none
	end     context.CancelCauseFunc
}

// Use counts a stream in that a caller has opened; Close counts it out. It returns nil,
// which is a Standing that never ends, if there is no key that could be revoked: without a
// catalog, and for tokens that do not name theirs.
func (g *Gate) Use(c Caller) *Standing {
	if g.keys == nil || c.Key == "" && !c.Open {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.standing(c.Key)
	if st.streams++; st.streams == 1 {
		st.held, st.end = context.WithCancelCause(context.Background())
		if st.revoked {
			st.end(ErrRevoked)
		}
	}
	return st
}

// Until is a context that ends, with ErrRevoked as its cause, when the catalog has said
// that the key is revoked. It is the same for all streams that are open with the key.
func (st *Standing) Until() context.Context {
	if st == nil {
		return context.Background()
	}
	st.gate.mu.Lock()
	defer st.gate.mu.Unlock()
	return st.held
}

// Streams is how many are open.
func (st *Standing) Streams() int {
	if st == nil {
		return 0
	}
	st.gate.mu.Lock()
	defer st.gate.mu.Unlock()
	return st.streams
}

// Close counts a stream out. Nothing may wait for its Until any more.
func (st *Standing) Close() {
	if st == nil {
		return
	}
	st.gate.mu.Lock()
	defer st.gate.mu.Unlock()
	if st.streams--; st.streams == 0 {
		st.end(nil)
		st.held = nil
	}
}

// standing finds a key's, or makes one of which nothing is known. Where there are too
// many, some without streams are forgotten. The caller holds mu.
func (g *Gate) standing(key string) *Standing {
	if st := g.standings[key]; st != nil {
		return st
	}
	for old, st := range g.standings {
		if len(g.standings) < g.opts.Max {
			break
		}
		if st.streams == 0 {
			delete(g.standings, old)
		}
	}
	st := &Standing{gate: g, key: key}
	g.standings[key] = st
	return st
}

// byKey returns who has a key: what was said of it last, as long as that holds or the
// catalog says nothing else.
func (g *Gate) byKey(ctx context.Context, key string) (Caller, error) {
	g.mu.Lock()
	st := g.standing(key)
	known, verdict := st.verdict()
	holds := st.revoked || time.Now().Before(st.until)
	g.mu.Unlock()
	if holds {
		return known, verdict
	}
	c, err := g.renew(ctx, key)
	if err != nil && !errors.Is(err, ErrUnauthorized) && verdict == nil {
		return known, nil // it was valid when the catalog last answered
	}
	return c, err
}

// verdict is what was last said. The caller holds the gate's mu.
func (st *Standing) verdict() (Caller, error) {
	if st.revoked || st.caller.Key == "" {
		return Caller{}, ErrUnauthorized
	}
	return st.caller, nil
}

// renew asks the catalog about a key.
func (g *Gate) renew(ctx context.Context, key string) (Caller, error) {
	return g.once(ctx, key, func(ctx context.Context) (Caller, error) {
		k, err := g.keys.KeyByID(ctx, key)
		return g.learn(key, k, err)
	})
}

// learn takes over what the catalog says of a key. Only that it is revoked ends streams,
// and is true for good: an answer that was on its way meanwhile, or that of an older
// backup, does not count.
func (g *Gate) learn(key string, k catalog.Key, err error) (Caller, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.standing(key)
	switch {
	case errors.Is(err, catalog.ErrRevoked):
		g.revoke(st)
	case errors.Is(err, catalog.ErrNotFound):
		st.caller, st.until = Caller{}, time.Now().Add(g.opts.Negative)
	case err != nil:
		if _, verdict := st.verdict(); verdict == nil {
			st.until = time.Now().Add(g.pause()) // not each request waits for a catalog that is away
		}
		return Caller{}, fmt.Errorf("identify caller: %w", err)
	default:
		st.caller = Caller{Tenant: k.Tenant, Key: k.ID, Name: k.Name, Scopes: k.Scopes}
		st.until = g.believed()
	}
	return st.verdict()
}

// pause is how long the catalog is left alone that does not answer.
func (g *Gate) pause() time.Duration { return g.opts.TTL / 12 }

// believed is until when an answer of now is. Some are a little sooner than others: keys
// that came into use together, after a restart, are not asked about together for ever.
func (g *Gate) believed() time.Time {
	return time.Now().Add(g.opts.TTL - rand.N(g.opts.TTL/10+1))
}

// revoke ends what is open with a key. The caller holds mu.
func (g *Gate) revoke(st *Standing) {
	if st.revoked {
		return
	}
	st.revoked = true
	if st.streams > 0 {
		st.end(ErrRevoked)
		if fn := g.opts.Revoked; fn != nil {
			go fn(st.key, st.held, st.streams)
		}
	}
}

// Run asks the catalog again about the keys that streams are open with, each when what it
// said last has run out, one after the other. It returns when ctx ends.
func (g *Gate) Run(ctx context.Context) error {
	if g.keys == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	var failing bool
	for {
		err := g.recheck(ctx)
		if err != nil && !failing {
			g.opts.Logger.Warn("keys of open streams cannot be checked; the streams go on", "err", err)
		}
		wait := max(g.opts.TTL/60, 10*time.Millisecond)
		if failing = err != nil; failing {
			wait = max(g.pause(), wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// recheck asks about all keys that it is time for, unless it finds the catalog away.
// Streams go on then: it has said nothing against them.
func (g *Gate) recheck(ctx context.Context) error {
	for _, key := range g.due() {
		ask := g.renew
		if key == "" {
			ask = g.stillOpen
		}
		if _, err := ask(ctx, key); err != nil && !errors.Is(err, ErrUnauthorized) {
			return err
		}
	}
	return nil
}

// stillOpen is renew for the empty key: that of streams which nobody needed a key for.
func (g *Gate) stillOpen(ctx context.Context, key string) (Caller, error) {
	if _, err := g.keysInUse(ctx); err != nil {
		return Caller{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.standing(key).until = g.believed()
	return openCaller, nil
}

func (g *Gate) due() (keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for key, st := range g.standings {
		if st.streams > 0 && !st.revoked && !now.Before(st.until) {
			keys = append(keys, key)
		}
	}
	return keys
}
