// Package auth tells who calls: a bearer key of the catalog, or anybody on a
// loopback listener of an installation that has no keys.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/runlog-dev/runlog/catalog"
)

// Keys is what the catalog tells of keys.
type Keys interface {
	// KeyByHash returns the key of a secret: catalog.ErrNotFound, ErrRevoked (with the
	// key), ErrUnavailable.
	KeyByHash(context.Context, catalog.KeyHash) (catalog.Key, error)
	// KeyByID is KeyByHash by a key's id.
	KeyByID(context.Context, string) (catalog.Key, error)
	// AnyKeys reports whether a key was ever created.
	AnyKeys(context.Context) (bool, error)
}

// defaultTenant is everybody's where there are no keys.
const defaultTenant = "default"

// Audit is the scope of a key that may see what is internal.
const Audit = "audit"

// A Caller is who makes a request.
type Caller struct {
	Tenant string
	Key    string // id of the key, or of the one that asked for the token; empty if there is none
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
	Logger *slog.Logger
	// Revoked, if set, is called in a goroutine of its own when a key is found to be
	// revoked that streams are open with, after their Until has ended.
	Revoked func(key string, until context.Context, streams int)
}

// A Gate identifies callers, and has what they opened end with their right to it. What the
// catalog says is cached: while it is down, known keys go on and unknown ones get
// catalog.ErrUnavailable. Safe for concurrent use.
type Gate struct {
	keys Keys
	opts Options
	ask  singleflight.Group

	loopback atomic.Bool // only this machine can reach the listener

	mu        sync.Mutex
	standings map[string]*Standing
	ids       map[catalog.KeyHash]string    // whose secret it is: that never changes
	invalid   map[catalog.KeyHash]time.Time // of no key, until then
	inUse     bool                          // keys are: known once and for all
	lookedAt  time.Time                     // when the catalog said that none are
}

// NewGate returns a gate; keys may be nil for an installation without catalog.
func NewGate(keys Keys, opts Options) *Gate {
	opts.TTL = cmp.Or(opts.TTL, time.Minute)
	opts.Negative = cmp.Or(opts.Negative, 10*time.Second)
	opts.Max = cmp.Or(opts.Max, 10_000)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Gate{keys: keys, opts: opts, standings: map[string]*Standing{}, ids: map[catalog.KeyHash]string{}, invalid: map[catalog.KeyHash]time.Time{}}
}

// Listen says whether the listener is loopback only, which it is not before. Any other
// one without keys is refused: everybody could come in.
func (g *Gate) Listen(ctx context.Context, loopback bool) error {
	g.loopback.Store(loopback)
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

// Loopback reports whether only this machine can reach the listener.
func (g *Gate) Loopback() bool { return g.loopback.Load() }

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
	return g.bySecret(r.Context(), catalog.HashKey(secret))
}

var openCaller = Caller{Tenant: defaultTenant, Name: "client", Open: true}

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
	any, err := g.anyKeys(ctx, looked.IsZero())
	if err != nil && !looked.IsZero() {
		any, err = false, nil // so it was, and the catalog cannot say more
	}
	if err != nil {
		return false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inUse, g.lookedAt = any, time.Now()
	if st := g.standings[""]; st != nil && any {
		g.revoke(st)
	}
	return any, nil
}

// anyKeys asks the catalog. Who knows how it was does not wait for long.
func (g *Gate) anyKeys(ctx context.Context, first bool) (bool, error) {
	wait := time.Second
	if first {
		wait = askTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	any, err := g.keys.AnyKeys(ctx)
	return any, late(err)
}

// askTimeout is for one question to the catalog.
const askTimeout = 5 * time.Second

// late says that a catalog which does not answer in time is away.
func late(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, catalog.ErrUnavailable) {
		return fmt.Errorf("%w: %w", catalog.ErrUnavailable, err)
	}
	return err
}

// once has the catalog asked, by all who want to know the same at a time together.
func (g *Gate) once(ctx context.Context, what string, ask func(context.Context) (Caller, error)) (Caller, error) {
	found, err, _ := g.ask.Do(what, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		c, err := ask(ctx)
		return c, late(err)
	})
	c, _ := found.(Caller)
	return c, err
}

// bySecret returns who has a key by the hash of its secret.
func (g *Gate) bySecret(ctx context.Context, hash catalog.KeyHash) (Caller, error) {
	g.mu.Lock()
	key, known := g.ids[hash]
	invalid := time.Now().Before(g.invalid[hash])
	g.mu.Unlock()
	switch {
	case known:
		return g.byKey(ctx, key)
	case invalid, g.keys == nil:
		return Caller{}, ErrUnauthorized
	}
	return g.once(ctx, string(hash[:]), func(ctx context.Context) (Caller, error) {
		k, err := g.keys.KeyByHash(ctx, hash)
		if k.ID == "" {
			return Caller{}, g.unknown(hash, err)
		}
		g.mu.Lock()
		note(g.ids, hash, k.ID, g.opts.Max)
		g.mu.Unlock()
		return g.learn(k.ID, k, err)
	})
}

// unknown is why nobody has a secret.
func (g *Gate) unknown(hash catalog.KeyHash, err error) error {
	if !errors.Is(err, catalog.ErrNotFound) {
		return fmt.Errorf("identify caller: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	note(g.invalid, hash, time.Now().Add(g.opts.Negative), g.opts.Max)
	return ErrUnauthorized
}

// note keeps what is known of a secret; where there are most, others are forgotten.
func note[V any](in map[catalog.KeyHash]V, hash catalog.KeyHash, v V, most int) {
	for old := range in {
		if len(in) < most {
			break
		}
		delete(in, old)
	}
	in[hash] = v
}
