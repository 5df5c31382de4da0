package eventlog

import (
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// blobs are in memory; meanwhile, if set, happens once while one is read or written.
type blobs struct {
	all       map[string][]byte
	away      error // while they cannot be read
	meanwhile func()
}

func (b *blobs) pause() {
	if fn := b.meanwhile; fn != nil {
		b.meanwhile = nil
		fn()
	}
}

func (b *blobs) Put(_ context.Context, name string, data []byte) error {
	b.pause()
	b.all[name] = data
	return nil
}

func (b *blobs) Get(_ context.Context, name string) ([]byte, error) {
	data, ok := b.all[name]
	b.pause()
	if !ok {
		return nil, ErrNotFound
	}
	return data, b.away
}

func (b *blobs) Delete(_ context.Context, name string) error {
	delete(b.all, name)
	return nil
}

// A largeSession has a snapshot that is too large for the bucket.
type largeSession struct {
	*Writer
	blobs *blobs
}

func newLargeSession(t *testing.T) largeSession {
	b := &blobs{all: map[string][]byte{}}
	w := open(t, Options{Blobs: b}).Writer(Key{"default", "s"}, Head{})
	t.Cleanup(w.Close)
	noise := make([]byte, 400<<10)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	parts := []event.Part{event.TextPart(base64.StdEncoding.EncodeToString(noise))}
	appendAll(t, w, 1)
	said := event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: "m", Role: event.RoleUser, Parts: parts, SHA256: event.TextHash(parts)})
	_, err := w.Append(said)
	if err == nil {
		err = w.Sync(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return largeSession{w, b}
}

// load returns the session's fold, which must be whole.
func (s largeSession) load(t *testing.T) *event.Session {
	t.Helper()
	fold, head, err := s.log.Load(t.Context(), s.key)
	if err != nil || fold.Seq != s.Head().Seq || head.Seq != fold.Seq || fold.MessageByID("m") == nil {
		t.Fatalf("loaded %+v, %v", head, err)
	}
	return fold
}

func (s largeSession) save(t *testing.T, fold *event.Session) {
	t.Helper()
	if err := s.log.SaveSnapshot(t.Context(), s.key, fold.Encode(), fold.Seq); err != nil {
		t.Fatal(err)
	}
}

// A snapshot is replaced while it is read, and what only the old one needed is purged:
// the fold is there all the same.
func TestLoadGoesOnFromANewerSnapshot(t *testing.T) {
	s := newLargeSession(t)
	s.save(t, s.load(t))
	if len(s.blobs.all) != 1 {
		t.Fatalf("%d blobs", len(s.blobs.all))
	}
	appendAll(t, s.Writer, 3)
	s.blobs.meanwhile = func() {
		appendAll(t, s.Writer, 3)
		s.save(t, s.load(t))
		purgeBefore(t, s.log, s.key, s.Head().First)
	}
	s.load(t)
}

// A snapshot that alone has a session's beginning, and that cannot be read for now, does not
// make the session one that is gone: who is told so does not come back.
func TestASnapshotThatIsAwayIsNotGone(t *testing.T) {
	s := newLargeSession(t)
	s.save(t, s.load(t))
	appendAll(t, s.Writer, 3)
	want := func(when string, is error) {
		t.Helper()
		if _, _, err := s.log.Load(t.Context(), s.key); !errors.Is(err, is) || err == nil != (is == nil) {
			t.Errorf("%s: %v, want %v", when, err, is)
		}
	}
	s.blobs.away = errors.New("503 slow down")
	want("with the whole log", nil)
	purgeBefore(t, s.log, s.key, 3)
	want("without the blob store", ErrUnavailable)
	s.blobs.away = nil
	want("with it", nil)
	clear(s.blobs.all)
	want("without the blob", ErrGone)
	if err := s.log.js.DeleteStream(t.Context(), "KV_SNAPSHOTS"); err != nil {
		t.Fatal(err)
	}
	want("without the bucket", ErrUnavailable)
}

// Whoever stores a snapshot while another one is on its way leaves one blob, that of the
// snapshot which is kept, in whatever order they come.
func TestSnapshotsLeaveNoBlobsBehind(t *testing.T) {
	s := newLargeSession(t)
	old := s.load(t)
	appendAll(t, s.Writer, 1)
	fold := s.load(t)
	for _, c := range []struct{ first, last *event.Session }{{old, old}, {old, fold}, {fold, fold}, {fold, old}} {
		if err := s.log.snap.Purge(t.Context(), s.key.suffix()); err != nil {
			t.Fatal(err)
		}
		clear(s.blobs.all)
		s.blobs.meanwhile = func() { s.save(t, c.last) }
		s.save(t, c.first)
		s.save(t, fold)
		s.save(t, old)
		if len(s.blobs.all) != 1 {
			t.Errorf("%d while %d is stored: %d blobs", c.last.Seq, c.first.Seq, len(s.blobs.all))
		}
		if kept, err := s.log.Snapshot(t.Context(), s.key); err != nil || kept.Seq != fold.Seq {
			t.Errorf("the snapshot that is kept: %+v, %v", kept, err)
		}
	}
}

// A snapshot that was stored is there, whatever the replicas of a cluster knew of the one
// before it when it was: the log may be purged of what it has.
func TestAStoredSnapshotIsThere(t *testing.T) {
	l, k := open(t, Options{}), Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	appendEach(t, w, 3)
	save(t, l, k)
	old, err := l.snap.Get(t.Context(), k.suffix())
	if err != nil {
		t.Fatal(err)
	}
	appendEach(t, w, 3)
	save(t, l, k)
	for _, behind := range []jetstream.KeyValue{&lagging{l.snap, old, 0}, &lagging{l.snap, old, 1}} {
		appendEach(t, w, 3)
		l.snap = behind
		save(t, l, k)
		if s, err := l.Snapshot(t.Context(), k); err != nil || s.Seq != w.Head().Seq {
			t.Errorf("the stored snapshot is of %d of %d, %v", s.Seq, w.Head().Seq, err)
		}
	}
}

// A lagging replica has an old entry. Another append is under way when it is written to, as
// often as refuses says.
type lagging struct {
	jetstream.KeyValue
	old     jetstream.KeyValueEntry
	refuses int
}

func (l *lagging) Get(context.Context, string) (jetstream.KeyValueEntry, error) { return l.old, nil }

func (l *lagging) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if l.refuses--; l.refuses >= 0 {
		return 0, &jetstream.APIError{ErrorCode: errInProcess}
	}
	return l.KeyValue.Update(ctx, key, value, revision)
}
