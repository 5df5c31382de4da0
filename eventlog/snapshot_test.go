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

// blobs are in memory; meanwhile, if set, happens once while one is read.
type blobs struct {
	all       map[string][]byte
	meanwhile func()
}

func (b *blobs) Put(_ context.Context, name string, data []byte) error {
	b.all[name] = data
	return nil
}

func (b *blobs) Get(_ context.Context, name string) ([]byte, error) {
	data, ok := b.all[name]
	if fn := b.meanwhile; fn != nil {
		b.meanwhile = nil
		fn()
	}
	if !ok {
		return nil, errors.New("no such blob")
	}
	return data, nil
}

func (b *blobs) Delete(_ context.Context, name string) error {
	delete(b.all, name)
	return nil
}

// A snapshot is replaced while it is read, and what only the old one needed is purged:
// the fold is there all the same.
func TestLoadGoesOnFromANewerSnapshot(t *testing.T) {
	b := &blobs{all: map[string][]byte{}}
	l := open(t, Options{Blobs: b})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	noise := make([]byte, 400<<10) // too large for the bucket
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	parts := []event.Part{event.TextPart(base64.StdEncoding.EncodeToString(noise))}
	appendAll(t, w, 1)
	said := event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: "m", Role: event.RoleUser, Parts: parts, SHA256: event.TextHash(parts)})
	if _, err := w.Append(said); err != nil {
		t.Fatal(err)
	}
	save := func() {
		s, head, err := l.Load(t.Context(), k)
		if err == nil {
			err = l.SaveSnapshot(t.Context(), k, s.Encode(), head)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	save()
	if len(b.all) != 1 {
		t.Fatalf("%d blobs", len(b.all))
	}
	appendAll(t, w, 3)
	b.meanwhile = func() {
		appendAll(t, w, 3)
		save()
		str, err := l.js.Stream(t.Context(), l.stream(k))
		if err == nil {
			err = str.Purge(t.Context(), jetstream.WithPurgeSubject(l.subject(k)), jetstream.WithPurgeSequence(w.Head().Pos))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, head, err := l.Load(t.Context(), k)
	if err != nil || s.Seq != w.Head().Seq || head.Seq != s.Seq || s.MessageByID("m") == nil {
		t.Errorf("loaded %+v, %v", head, err)
	}
}
