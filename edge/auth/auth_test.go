package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/event"
)

// flaky is a catalog with keys that can be taken away.
type flaky struct {
	mu    sync.Mutex
	down  bool
	hangs atomic.Bool // it is down and does not say so
	keys  []catalog.Key
	asked atomic.Int64
}

func (f *flaky) set(down bool, keys ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.keys = down, nil
	for _, k := range keys {
		f.keys = append(f.keys, catalog.Key{ID: "id-" + k, Tenant: "t", Name: k})
	}
}

func (f *flaky) revoke(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.keys {
		if f.keys[i].Name == key {
			f.keys[i].Revoked = &event.Time{}
		}
	}
}

func (f *flaky) KeyByHash(ctx context.Context, h catalog.KeyHash) (catalog.Key, error) {
	return f.find(ctx, func(k catalog.Key) bool { return catalog.HashKey(k.Name) == h })
}

func (f *flaky) KeyByID(ctx context.Context, id string) (catalog.Key, error) {
	return f.find(ctx, func(k catalog.Key) bool { return k.ID == id })
}

func (f *flaky) find(ctx context.Context, is func(catalog.Key) bool) (catalog.Key, error) {
	f.asked.Add(1)
	if f.hangs.Load() {
		<-ctx.Done()
		return catalog.Key{}, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.keys, is)
	switch {
	case f.down:
		return catalog.Key{}, fmt.Errorf("look up: %w", catalog.ErrUnavailable)
	case i < 0:
		return catalog.Key{}, catalog.ErrNotFound
	case f.keys[i].Revoked != nil:
		return f.keys[i], catalog.ErrRevoked
	}
	return f.keys[i], nil
}

func (f *flaky) AnyKeys(ctx context.Context) (bool, error) {
	if f.hangs.Load() {
		<-ctx.Done()
		return false, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return false, catalog.ErrUnavailable
	}
	return len(f.keys) > 0, nil
}

func (g *Gate) by(secret string) (Caller, error) {
	r := httptest.NewRequest("GET", "/", nil)
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	return g.Identify(r)
}

func TestKnownKeysGoOnWhileTheCatalogIsDown(t *testing.T) {
	f := &flaky{}
	f.set(false, "good")
	g := NewGate(f, Options{TTL: time.Nanosecond, Negative: time.Nanosecond})
	for range 3 {
		if c, err := g.by("good"); err != nil || c.Tenant != "t" || c.Key != "id-good" || c.May(Audit) {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	f.set(true)
	if c, err := g.by("good"); err != nil || c.Tenant != "t" {
		t.Errorf("a known key: %+v, %v", c, err)
	}
	if _, err := g.by("new"); !errors.Is(err, catalog.ErrUnavailable) {
		t.Errorf("an unknown key: %v", err)
	}
	f.set(false, "new")
	if _, err := g.by("good"); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("a key that is gone: %v", err)
	}
	if _, err := g.by("new"); err != nil {
		t.Error(err)
	}
	f.set(true)
	if _, err := g.by("good"); !errors.Is(err, catalog.ErrUnavailable) {
		t.Errorf("a key that is gone is remembered as valid: %v", err)
	}
	f.set(false, "new")
	f.revoke("new")
	if _, err := g.by("new"); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("a revoked key: %v", err)
	}
	f.set(true)
	if _, err := g.by("new"); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("it is not remembered that a key is revoked: %v", err)
	}
}

func TestAnswersAreCachedAndBounded(t *testing.T) {
	f := &flaky{}
	f.set(false, "good")
	g := NewGate(f, Options{Max: 10, TTL: time.Hour, Negative: time.Hour})
	for range 100 {
		_, _ = g.by("good")
		_, _ = g.by("bad")
	}
	if n := f.asked.Load(); n != 2 {
		t.Errorf("the catalog was asked %d times", n)
	}
	for i := range 1000 {
		_, _ = g.by(fmt.Sprint("guess", i))
	}
	if len(g.standings) != 1 || len(g.ids) != 1 || len(g.invalid) > 10 {
		t.Errorf("%d keys, %d secrets, %d invalid", len(g.standings), len(g.ids), len(g.invalid))
	}
	many := []string{"good"}
	for i := range 100 {
		many = append(many, fmt.Sprint("key", i))
	}
	f.set(false, many...)
	st := g.Use(Caller{Key: "id-good"})
	for _, k := range many {
		if _, err := g.by(k); err != nil {
			t.Error(err)
		}
	}
	if n := len(g.standings); n > 10 || len(g.ids) > 10 || g.standings["id-good"] != st {
		t.Errorf("%d keys, %d secrets; the one with a stream is %p, was %p", n, len(g.ids), g.standings["id-good"], st)
	}
	if _, err := g.by(""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("without a key: %v", err)
	}
}

func TestOpenOnlyOnLoopbackAndWithoutKeys(t *testing.T) {
	f := &flaky{}
	f.set(false)
	g := NewGate(f, Options{})
	if err := g.Listen(t.Context(), false); err == nil {
		t.Error("a public listener without keys is fine")
	}
	if _, err := g.by(""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("public: %v", err)
	}
	if err := g.Listen(t.Context(), true); err != nil {
		t.Error(err)
	}
	if c, err := g.by(""); err != nil || c.Tenant != defaultTenant || !c.May(Audit) {
		t.Errorf("loopback: %+v, %v", c, err)
	}
	f.set(true)
	g.lookedAt = time.Now().Add(-time.Hour)
	if _, err := g.by(""); err != nil {
		t.Errorf("the catalog is down: %v", err)
	}
	f.set(false, "first")
	g.lookedAt = time.Now().Add(-time.Hour)
	if _, err := g.by(""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("after the first key: %v", err)
	}
	fresh := NewGate(f, Options{})
	f.set(true)
	if err := fresh.Listen(t.Context(), true); err != nil {
		t.Error(err)
	}
	if _, err := fresh.by(""); !errors.Is(err, catalog.ErrUnavailable) {
		t.Errorf("nobody can tell whether there are keys: %v", err)
	}
	if c, err := NewGate(nil, Options{}).by("x"); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("no catalog, not loopback: %+v, %v", c, err)
	}
}
