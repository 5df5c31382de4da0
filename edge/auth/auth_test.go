package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/catalog"
)

// flaky is a catalog with one key that can be taken away.
type flaky struct {
	mu    sync.Mutex
	down  bool
	keys  map[catalog.KeyHash]catalog.Key
	asked atomic.Int64
}

func (f *flaky) set(down bool, keys ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.keys = down, map[catalog.KeyHash]catalog.Key{}
	for _, k := range keys {
		f.keys[catalog.HashKey(k)] = catalog.Key{ID: "id-" + k, Tenant: "t", Name: k}
	}
}

func (f *flaky) KeyByHash(_ context.Context, h catalog.KeyHash) (catalog.Key, error) {
	f.asked.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	k, ok := f.keys[h]
	switch {
	case f.down:
		return catalog.Key{}, fmt.Errorf("look up: %w", catalog.ErrUnavailable)
	case !ok:
		return catalog.Key{}, catalog.ErrNotFound
	}
	return k, nil
}

func (f *flaky) AnyKeys(context.Context) (bool, error) {
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
		t.Errorf("a revoked key: %v", err)
	}
	if _, err := g.by("new"); err != nil {
		t.Error(err)
	}
	f.set(true)
	if _, err := g.by("good"); !errors.Is(err, catalog.ErrUnavailable) {
		t.Errorf("a revoked key is remembered as valid: %v", err)
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
	if len(g.valid) != 1 || len(g.invalid) > 10 {
		t.Errorf("%d valid, %d invalid", len(g.valid), len(g.invalid))
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
	if c, err := g.by(""); err != nil || c.Tenant != DefaultTenant || !c.May(Audit) {
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
