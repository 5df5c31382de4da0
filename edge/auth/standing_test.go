package auth

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runlog-dev/runlog/catalog"
)

// running is a gate of which Run runs in the bubble of a test.
func running(t *testing.T, f *flaky, opts Options) *Gate {
	t.Helper()
	g := NewGate(f, opts)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return g
}

func (g *Gate) open(t *testing.T, secret string) *Standing {
	t.Helper()
	c, err := g.by(secret)
	if err != nil {
		t.Fatal(err)
	}
	return g.Use(c)
}

// ended reports why what is open with a key has ended; nil: it has not.
func ended(st *Standing) error {
	synctest.Wait()
	return context.Cause(st.Until())
}

// A stream ends no later after its key is revoked than a key is believed to be valid, and
// not without that. Other streams go on.
func TestStreamsEndWithTheirKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		f.set(false, "one", "other")
		told := make(chan string, 9)
		g := running(t, f, Options{Revoked: func(key string, until context.Context, streams int) {
			told <- fmt.Sprint(key, streams, context.Cause(until) == ErrRevoked)
		}})
		one, again, other := g.open(t, "one"), g.open(t, "one"), g.open(t, "other")
		if one != again || one.Until() != again.Until() || one.Streams() != 2 {
			t.Errorf("%+v, %+v", one, again)
		}
		time.Sleep(10 * time.Minute)
		if ended(one) != nil || ended(other) != nil {
			t.Fatal("streams end although their keys are valid")
		}
		f.revoke("one")
		time.Sleep(time.Minute + 2*time.Second)
		if err := ended(one); !errors.Is(err, ErrRevoked) {
			t.Errorf("after a minute: %v", err)
		}
		if got := <-told; got != "id-one2 true" || len(told) > 0 {
			t.Errorf("told %s", got)
		}
		if ended(other) != nil {
			t.Error("another key's streams end")
		}
		one.Close()
		again.Close()
		if _, err := g.by("one"); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("a request: %v", err)
		}
		if late := g.Use(Caller{Key: "id-one"}); !errors.Is(ended(late), ErrRevoked) {
			t.Error("who was let in just before opens a stream, and it goes on")
		}
	})
}

// However many streams and requests a key has, the catalog is asked about it once a minute
// or so, and about keys without streams not at all; and not about all at the same time.
func TestTheCatalogIsAskedOncePerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, minutes = 50, 30
		f := &flaky{}
		var names []string
		for i := range keys {
			names = append(names, fmt.Sprint("key", i))
		}
		f.set(false, names...)
		g := running(t, f, Options{})
		for _, name := range names {
			for range 200 {
				g.open(t, name)
			}
			g.open(t, name).Close()
		}
		if n := f.asked.Load(); n != keys {
			t.Errorf("%d questions to let them in", n)
		}
		most := int64(0)
		for range minutes * 60 {
			before := f.asked.Load()
			time.Sleep(time.Second)
			synctest.Wait()
			if _, err := g.by("key7"); err != nil {
				t.Fatal(err)
			}
			most = max(most, f.asked.Load()-before)
		}
		if n := f.asked.Load(); n < keys*minutes || n > keys*minutes*5/4 {
			t.Errorf("asked %d times in %d minutes about %d keys", n, minutes, keys)
		}
		if most > keys/2 {
			t.Errorf("asked about %d of %d keys in one second", most, keys)
		}
		for _, name := range names {
			for range 200 {
				g.standings["id-"+name].Close()
			}
		}
		before := f.asked.Load()
		time.Sleep(time.Hour)
		if n := f.asked.Load() - before; n != 0 {
			t.Errorf("asked %d times with nothing open", n)
		}
	})
}

// A catalog that is away, or has lost a key, has said nothing against it. What it says when
// it is back counts soon.
func TestACatalogThatIsAwayEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		f.set(false, "one", "other")
		g := running(t, f, Options{})
		one, other := g.open(t, "one"), g.open(t, "other")
		f.set(true)
		time.Sleep(time.Hour)
		f.set(false) // an older backup
		time.Sleep(time.Hour)
		if ended(one) != nil || ended(other) != nil {
			t.Fatalf("%v, %v", ended(one), ended(other))
		}
		f.set(true, "one", "other")
		f.revoke("one")
		time.Sleep(time.Hour)
		f.mu.Lock()
		f.down = false
		f.mu.Unlock()
		time.Sleep(11 * time.Second)
		if !errors.Is(ended(one), ErrRevoked) || ended(other) != nil {
			t.Errorf("when it is back: %v, %v", ended(one), ended(other))
		}
	})
}

// A catalog that hangs is away, too: what it has said counts, and its clients do not wait
// for it each time.
func TestACatalogThatHangsHoldsUpFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		f.set(false, "busy", "quiet", "new")
		g := running(t, f, Options{})
		st := g.open(t, "busy")
		g.open(t, "quiet").Close()
		f.hangs.Store(true)
		time.Sleep(10 * time.Minute)
		for _, key := range []string{"busy", "quiet"} {
			began := time.Now()
			for range 100 {
				if _, err := g.by(key); err != nil {
					t.Error(err)
				}
			}
			if took := time.Since(began); took > askTimeout {
				t.Errorf("100 requests by the %s key took %s", key, took)
			}
		}
		if _, err := g.by("new"); !errors.Is(err, catalog.ErrUnavailable) {
			t.Errorf("an unknown key: %v", err)
		}
		if ended(st) != nil {
			t.Error(ended(st))
		}
	})
}

// Nor does an edge without keys wait for it, but for a moment.
func TestAnOpenGateStaysOpenWhileTheCatalogHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		g := NewGate(f, Options{})
		listen(t, g)
		if c, err := g.by(""); err != nil || !c.Open {
			t.Fatalf("%+v, %v", c, err)
		}
		f.hangs.Store(true)
		time.Sleep(10 * time.Minute)
		began := time.Now()
		for range 100 {
			if c, err := g.by(""); err != nil || !c.Open {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("100 requests took %s", took)
		}
		fresh := NewGate(f, Options{})
		listen(t, fresh)
		if _, err := fresh.by(""); !errors.Is(err, catalog.ErrUnavailable) {
			t.Errorf("nobody can tell whether there are keys: %v", err)
		}
	})
}

// Where no keys were in use, streams end when some are.
func TestOpenStreamsEndWithTheFirstKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		g := running(t, f, Options{})
		listen(t, g)
		st := g.open(t, "")
		time.Sleep(time.Hour)
		if ended(st) != nil {
			t.Fatal(ended(st))
		}
		f.set(false, "first")
		time.Sleep(time.Minute + 2*time.Second)
		if !errors.Is(ended(st), ErrRevoked) {
			t.Errorf("with the first key: %v", ended(st))
		}
	})
}

// A token is refused once the key that asked for it is known to be revoked; one of before
// tokens said which key that was is good until it expires.
func TestTokensOfRevokedKeys(t *testing.T) {
	f := &flaky{}
	f.set(false, "one")
	secret := []byte("secret")
	g := NewGate(f, Options{TTL: time.Nanosecond, Secret: func(context.Context) ([]byte, error) { return secret, nil }})
	by := func(key string) (Caller, error) {
		return g.Follower(t.Context(), Grant{Tenant: "t", Session: "s", Key: key, Expires: time.Now().Unix() + 60}.Sign(secret))
	}
	if c, err := by("id-one"); err != nil || c.Key != "id-one" || c.Tenant != "t" || len(c.Scopes) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
	f.set(true, "one", "two")
	for _, key := range []string{"id-one", "id-two", ""} {
		if _, err := by(key); err != nil {
			t.Errorf("while the catalog is away, %q: %v", key, err)
		}
	}
	f.set(false, "one")
	f.revoke("one")
	for key, want := range map[string]error{"id-one": ErrToken, "id-two": ErrToken, "": nil} {
		if _, err := by(key); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", key, err, want)
		}
	}
	f.set(true)
	if _, err := by("id-one"); !errors.Is(err, ErrToken) {
		t.Errorf("it is not remembered that the key is revoked: %v", err)
	}
	if st := g.Use(Caller{Tenant: "t", Grant: &Grant{}}); st != nil || st.Until().Err() != nil || st.Streams() != 0 {
		t.Errorf("an old token has the standing %+v", st)
	}
}

// listen has a gate serve this machine alone.
func listen(t *testing.T, g *Gate) {
	t.Helper()
	if err := g.Listen(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}
