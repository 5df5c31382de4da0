// Package auth tells who calls: a bearer key of the catalog, or anybody on a
// loopback listener of an installation that has no keys.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/runlog-dev/runlog/catalog"
)

// Keys is what the catalog tells of keys.
type Keys interface {
	// KeyByHash returns the key of a secret: catalog.ErrNotFound, ErrRevoked,
	// ErrUnavailable.
	KeyByHash(context.Context, catalog.KeyHash) (catalog.Key, error)
	// AnyKeys reports whether a key was ever created.
	AnyKeys(context.Context) (bool, error)
}

// DefaultTenant is everybody's where there are no keys.
const DefaultTenant = "default"

// Audit is the scope of a key that may see what is internal.
const Audit = "audit"

// A Caller is who makes a request.
type Caller struct {
	Tenant string
	Key    string // id of the key, empty if there are none
	Name   string // of the key
	Scopes []string
	Open   bool   // no keys are in use: the caller may do everything
	Grant  *Grant // of a caller with a token
}

// May reports whether the caller has a scope.
func (c Caller) May(scope string) bool { return c.Open || slices.Contains(c.Scopes, scope) }

// ErrUnauthorized: no key, or one that is not valid.
var ErrUnauthorized = errors.New("send a valid API key: Authorization: Bearer rl_…")

// Options of a Gate; the zero value works.
type Options struct {
	TTL      time.Duration // how long a key is believed to be valid, default 1 min
	Negative time.Duration // and how long to be invalid, default 10 s
	Max      int           // keys remembered of each sort, default 10,000
	// Secret returns what tokens are signed with; nil: there are no tokens.
	Secret func(context.Context) ([]byte, error)
}

// A Gate identifies callers. What the catalog says is cached: while it is down,
// known keys go on and unknown ones get catalog.ErrUnavailable. Safe for
// concurrent use.
type Gate struct {
	keys Keys
	opts Options
	ask  singleflight.Group

	mu       sync.Mutex
	loopback bool // only this machine can reach the listener
	valid    map[catalog.KeyHash]answer
	invalid  map[catalog.KeyHash]answer
	inUse    bool      // keys are: known once and for all
	lookedAt time.Time // when the catalog said that none are
}

type answer struct {
	caller Caller
	until  time.Time
}

// NewGate returns a gate; keys may be nil for an installation without catalog.
func NewGate(keys Keys, opts Options) *Gate {
	opts.TTL = cmp.Or(opts.TTL, time.Minute)
	opts.Negative = cmp.Or(opts.Negative, 10*time.Second)
	opts.Max = cmp.Or(opts.Max, 10_000)
	return &Gate{keys: keys, opts: opts, valid: map[catalog.KeyHash]answer{}, invalid: map[catalog.KeyHash]answer{}}
}

// Listen says whether the listener is loopback only. Any other one without keys
// is refused: everybody could come in.
func (g *Gate) Listen(ctx context.Context, loopback bool) error {
	g.SetLoopback(loopback)
	if loopback {
		return nil
	}
	inUse, err := g.keysInUse(ctx)
	if err != nil {
		return nil // the catalog is down: until it answers, nobody gets in
	}
	if !inUse {
		return errors.New("the listener can be reached from other machines and there is no API key: create one with `runlog keys create`, or listen on 127.0.0.1")
	}
	return nil
}

// SetLoopback says so without a check, for whoever serves without Listen.
func (g *Gate) SetLoopback(loopback bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.loopback = loopback
}

// Loopback reports whether only this machine can reach the listener.
func (g *Gate) Loopback() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.loopback
}

// Identify returns who makes the request: ErrUnauthorized, or
// catalog.ErrUnavailable if that cannot be found out now.
func (g *Gate) Identify(r *http.Request) (Caller, error) {
	if open, err := g.isOpen(r.Context()); err != nil || open {
		return openCaller, err
	}
	secret := bearer(r)
	if secret == "" {
		return Caller{}, ErrUnauthorized
	}
	return g.caller(r.Context(), catalog.HashKey(secret))
}

var openCaller = Caller{Tenant: DefaultTenant, Name: "client", Open: true}

// bearer also reads the header in which some vendors' clients send keys.
func bearer(r *http.Request) string {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(secret)
	}
	return r.Header.Get("X-Api-Key")
}

func (g *Gate) isOpen(ctx context.Context) (bool, error) {
	if !g.Loopback() {
		return false, nil
	}
	inUse, err := g.keysInUse(ctx)
	return err == nil && !inUse, err
}

// relook is how often an open gate asks whether a key was created meanwhile.
const relook = 5 * time.Second

func (g *Gate) keysInUse(ctx context.Context) (bool, error) {
	g.mu.Lock()
	inUse, looked := g.inUse, g.lookedAt
	g.mu.Unlock()
	if g.keys == nil || inUse || time.Since(looked) < relook {
		return inUse, nil
	}
	any, err := g.keys.AnyKeys(ctx)
	if err != nil && !looked.IsZero() {
		any, err = false, nil // so it was, and the catalog cannot say more
	}
	if err != nil {
		return false, err
	}
	g.mu.Lock()
	g.inUse, g.lookedAt = any, time.Now()
	g.mu.Unlock()
	return any, nil
}

func (g *Gate) caller(ctx context.Context, hash catalog.KeyHash) (Caller, error) {
	known, fresh, err := g.cached(hash)
	if fresh || err != nil {
		return known.caller, err
	}
	if g.keys == nil {
		return Caller{}, ErrUnauthorized
	}
	found, err, _ := g.ask.Do(string(hash[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return g.lookUp(ctx, hash)
	})
	if errors.Is(err, catalog.ErrUnavailable) && known.caller.Tenant != "" {
		return known.caller, nil // it was valid when the catalog was last asked
	}
	c, _ := found.(Caller)
	return c, err
}

// cached returns what is known of a key, and whether that can still be relied on.
func (g *Gate) cached(hash catalog.KeyHash) (known answer, fresh bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if no, ok := g.invalid[hash]; ok && now.Before(no.until) {
		return no, false, ErrUnauthorized
	}
	known = g.valid[hash]
	return known, now.Before(known.until), nil
}

func (g *Gate) lookUp(ctx context.Context, hash catalog.KeyHash) (Caller, error) {
	k, err := g.keys.KeyByHash(ctx, hash)
	switch {
	case errors.Is(err, catalog.ErrNotFound), errors.Is(err, catalog.ErrRevoked):
		g.remember(g.invalid, hash, answer{until: time.Now().Add(g.opts.Negative)})
		return Caller{}, ErrUnauthorized
	case err != nil:
		return Caller{}, fmt.Errorf("identify caller: %w", err)
	}
	c := Caller{Tenant: k.Tenant, Key: k.ID, Name: k.Name, Scopes: k.Scopes}
	g.remember(g.valid, hash, answer{c, time.Now().Add(g.opts.TTL)})
	return c, nil
}

// remember keeps an answer; where there are too many, others are forgotten.
func (g *Gate) remember(in map[catalog.KeyHash]answer, hash catalog.KeyHash, a answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.valid, hash)
	delete(g.invalid, hash)
	for old := range in {
		if len(in) < g.opts.Max {
			break
		}
		delete(in, old)
	}
	in[hash] = a
}
