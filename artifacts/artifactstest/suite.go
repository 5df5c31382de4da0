// Package artifactstest holds every implementation of artifacts.Store to the
// promises in its documentation.
package artifactstest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
)

// partBytes is the smallest part: what is longer takes the multipart path on S3.
const partBytes = 5 << 20

// sizes are chosen around the edges of parts and of read windows.
var sizes = map[string]int{
	"empty": 0, "one byte": 1, "small": 70_001, "just below a part": partBytes - 1, "a part": partBytes,
	"just over a part": partBytes + 1, "several parts": 2*partBytes + 12_345,
}

// Run tests the store that Open finds at a URL. fresh returns the URL of an
// empty one each time.
func Run(t *testing.T, fresh func(testing.TB) string) {
	for _, c := range []struct {
		name string
		test func(*testing.T, env)
	}{
		{"RoundTrip", testRoundTrip},
		{"ReadsAndSeeks", testReadsAndSeeks},
		{"OtherNodesSeeIt", testOtherNodesSeeIt},
		{"NothingVisibleBeforeCommit", testNothingVisibleBeforeCommit},
		{"CreateOnce", testCreateOnce},
		{"OneOfManyRacersWins", testRacers},
		{"AbortLeavesNothing", testAbort},
		{"WriterMisuse", testWriterMisuse},
		{"TooLarge", testTooLarge},
		{"SweepTakesAbandonedWritesOnly", testSweep},
		{"SweptWriterCannotCommit", testSweptWriter},
		{"SweepBesideWriters", testSweepBesideWriters},
		{"Delete", testDelete},
		{"DeleteUnderAReader", testDeleteUnderReader},
		{"BadKeys", testBadKeys},
		{"OddKeysAreDistinct", testOddKeys},
		{"TenantsAreApart", testTenants},
		{"MetaInAnyScript", testMeta},
		{"BadMeta", testBadMeta},
		{"CanceledContext", testCanceled},
		{"CommitAgainAfterCancel", testCommitAgain},
		{"Ping", testPing},
		{"Serve", testServe},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := fresh(t)
			c.test(t, env{t, url, open(t, url, artifacts.Options{PartBytes: partBytes})})
		})
	}
}

// env is a fresh store with what tests do to it.
type env struct {
	*testing.T
	url string
	artifacts.Store
}

func open(t testing.TB, url string, o artifacts.Options) artifacts.Store {
	t.Helper()
	s, err := artifacts.Open(t.Context(), url, o)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return s
}

func key(id string) artifacts.Key { return artifacts.Key{Tenant: "acme", ID: id} }

var plain = artifacts.Meta{Name: "notes.txt", MediaType: "text/plain"}

// Content returns n bytes that no two seeds share.
func Content(seed uint64, n int) []byte {
	b := make([]byte, n)
	var s [32]byte
	s[0], s[1] = byte(seed), byte(seed>>8)
	if _, err := rand.NewChaCha8(s).Read(b); err != nil {
		panic(err) // it never fails
	}
	return b
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// begin writes content in uneven pieces and leaves the write open.
func (e env) begin(k artifacts.Key, m artifacts.Meta, content []byte) *artifacts.Writer {
	e.Helper()
	w, err := e.Create(e.Context(), k, m)
	if err != nil {
		e.Fatalf("create %s: %v", k, err)
	}
	for piece := 1; len(content) > 0; piece = piece*3 + 1 {
		n := min(piece, len(content), 1<<20)
		if _, err := w.Write(content[:n]); err != nil {
			e.Fatalf("write %s: %v", k, err)
		}
		content = content[n:]
	}
	return w
}

// store commits content and returns what Commit did.
func (e env) store(k artifacts.Key, m artifacts.Meta, content []byte) artifacts.Info {
	e.Helper()
	info, err := e.begin(k, m, content).Commit(e.Context())
	if err != nil {
		e.Fatalf("commit %s: %v", k, err)
	}
	return info
}

// read returns the whole content under k.
func (e env) read(k artifacts.Key) []byte {
	e.Helper()
	o, err := e.Open(e.Context(), k)
	if err != nil {
		e.Fatalf("open %s: %v", k, err)
	}
	defer o.Close()
	b, err := io.ReadAll(o)
	if err != nil {
		e.Fatalf("read %s: %v", k, err)
	}
	return b
}

func (e env) wantContent(k artifacts.Key, want []byte) {
	e.Helper()
	if got := e.read(k); !bytes.Equal(got, want) {
		e.Errorf("content of %s: got %d bytes with sha256 %s, want %d with %s", k, len(got), hexSum(got), len(want), hexSum(want))
	}
}

// wantAbsent checks that no method finds k.
func (e env) wantAbsent(k artifacts.Key) {
	e.Helper()
	if _, err := e.Stat(e.Context(), k); !errors.Is(err, artifacts.ErrNotFound) {
		e.Errorf("stat %s: got %v, want ErrNotFound", k, err)
	}
	o, err := e.Open(e.Context(), k)
	if !errors.Is(err, artifacts.ErrNotFound) {
		e.Errorf("open %s: got %v, want ErrNotFound", k, err)
	}
	if err == nil {
		o.Close()
	}
	_, err = e.PresignGet(e.Context(), k, time.Minute)
	if !errors.Is(err, artifacts.ErrNotFound) && !errors.Is(err, errors.ErrUnsupported) {
		e.Errorf("presign %s: got %v, want ErrNotFound or ErrUnsupported", k, err)
	}
}

// wantClean checks that there is nothing for Sweep to remove.
func (e env) wantClean() {
	e.Helper()
	if n := e.sweep(0); n != 0 {
		e.Errorf("sweep found %d remains, want none", n)
	}
}

func (e env) sweep(olderThan time.Duration) int {
	e.Helper()
	n, err := e.Sweep(e.Context(), olderThan)
	if err != nil {
		e.Fatalf("sweep: %v", err)
	}
	return n
}

func (e env) wantIs(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
