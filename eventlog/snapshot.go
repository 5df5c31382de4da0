package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// inlineSnapshot is the largest compressed snapshot kept in the KV bucket.
const inlineSnapshot = 256 << 10

// snapshotEntry is the value in the SNAPSHOTS bucket: where the fold stands, and
// the fold itself or the name of the blob that holds it.
type snapshotEntry struct {
	Fold  int         `json:"fold"`
	Epoch event.Epoch `json:"epoch,omitempty"` // in which it was saved
	Seq   event.Seq   `json:"seq"`
	Blob  string      `json:"blob,omitempty"`
	Zstd  []byte      `json:"zstd,omitempty"`
}

var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options are constant
		}
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err)
		}
		return d
	})
)

// SaveSnapshot keeps the fold of the committed events through seq for later loads. A
// snapshot that is there and is as new stays. Once it has returned nil one of seq or later
// is stored, unless Options.Blobs is missing and it is large.
func (l *Log) SaveSnapshot(ctx context.Context, k Key, encoded []byte, seq event.Seq) error {
	if err := l.saveSnapshot(ctx, k, encoded, seq); err != nil {
		return unavailable(fmt.Errorf("save snapshot of %s: %w", k, err))
	}
	return nil
}

func (l *Log) saveSnapshot(ctx context.Context, k Key, encoded []byte, seq event.Seq) error {
	old, revision, err := l.savedSnapshot(ctx, k)
	if err != nil || l.isAsNew(old, seq) {
		return err
	}
	entry, keeps, err := l.newEntry(ctx, encoded, seq)
	if err != nil || !keeps {
		return err
	}
	orphan := entry.Blob // if another writer's snapshot is as good
	err = settled(ctx, func() (lost bool, err error) {
		err = l.putSnapshot(ctx, k, entry, revision)
		if errors.Is(err, jetstream.ErrKeyExists) || apiCode(err) == errWrongLast || apiCode(err) == errInProcess {
			old, revision, err = l.savedSnapshot(ctx, k)
			return err == nil && !l.isAsNew(old, seq), err
		}
		orphan = old.Blob
		return false, err
	})
	if err != nil || orphan == "" || l.opts.Blobs == nil {
		return err
	}
	return l.opts.Blobs.Delete(ctx, orphan)
}

// isAsNew reports whether a stored snapshot makes one of a seq superfluous.
func (l *Log) isAsNew(old snapshotEntry, seq event.Seq) bool {
	return old.Fold == event.FoldVersion && old.Epoch == l.epoch && old.Seq >= seq
}

// savedSnapshot returns what a save finds at the leader, and the revision to replace: 0 if
// there is nothing. An entry that cannot be read is worth nothing.
func (l *Log) savedSnapshot(ctx context.Context, k Key) (entry snapshotEntry, revision uint64, err error) {
	m, err := l.leaderKV(ctx, "SNAPSHOTS", k.suffix())
	if errors.Is(err, ErrNotFound) {
		return entry, 0, nil
	}
	if err != nil {
		return entry, 0, err
	}
	if json.Unmarshal(m.Data, &entry) != nil {
		entry = snapshotEntry{}
	}
	return entry, m.Pos, nil
}

// newEntry is the entry of a fold; keeps is false if there is no place for it.
func (l *Log) newEntry(ctx context.Context, encoded []byte, seq event.Seq) (entry snapshotEntry, keeps bool, err error) {
	entry = snapshotEntry{Fold: event.FoldVersion, Epoch: l.epoch, Seq: seq, Zstd: encoder().EncodeAll(encoded, nil)}
	if len(entry.Zstd) <= inlineSnapshot {
		return entry, true, nil
	}
	if l.opts.Blobs == nil {
		return entry, false, nil
	}
	entry, err = l.inBlob(ctx, entry)
	return entry, true, err
}

// inBlob moves a fold to a blob. Each has a name of its own, so that whoever finds that
// another writer was first can delete it.
func (l *Log) inBlob(ctx context.Context, entry snapshotEntry) (snapshotEntry, error) {
	data := entry.Zstd
	entry.Blob, entry.Zstd = event.NewID("snapshot"), nil
	return entry, l.opts.Blobs.Put(ctx, entry.Blob, data)
}

func (l *Log) putSnapshot(ctx context.Context, k Key, entry snapshotEntry, revision uint64) (err error) {
	if revision == 0 {
		_, err = l.snap.Create(ctx, k.suffix(), event.Encode(entry))
	} else {
		_, err = l.snap.Update(ctx, k.suffix(), event.Encode(entry), revision)
	}
	return err
}

// snapshot returns the stored fold, as stored reads it, if it can be used for a fold at
// seq; else nil: then the events are folded from the beginning. away is why it is not known
// whether there is one that can be used. err is the gate's.
func (l *Log) snapshot(ctx context.Context, k Key, seq event.Seq, gate Gate, stored func(context.Context, Key) ([]byte, error)) (s *event.Session, away, err error) {
	value, err := stored(ctx, k)
	if errors.Is(err, ErrNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, err, nil
	}
	var entry snapshotEntry
	if err := json.Unmarshal(value, &entry); err != nil {
		l.unusable(k, err)
		return nil, nil, nil
	}
	if entry.Seq > seq || entry.Fold != event.FoldVersion {
		return nil, nil, nil
	}
	if err := gate.pass(ctx, entry.weight()); err != nil {
		return nil, nil, err
	}
	packed, err := l.packed(ctx, entry)
	if err != nil && !errors.Is(err, ErrNotFound) {
		away = err
	}
	if err == nil {
		s, err = unpack(packed)
	}
	if err != nil {
		l.unusable(k, err)
		return nil, away, nil
	}
	if stands, away := l.stands(ctx, k, entry, s); !stands {
		return nil, away, nil
	}
	return s, nil, nil
}

func (l *Log) unusable(k Key, err error) {
	l.opts.Logger.Warn("snapshot not usable", "tenant", k.Tenant, "session", k.Session, "err", err)
}

// stands reports whether the log still has what a fold was made of, which may have been
// saved before the log was restored.
func (l *Log) stands(ctx context.Context, k Key, entry snapshotEntry, s *event.Session) (bool, error) {
	if entry.Epoch == l.epoch {
		return true, nil
	}
	head, err := l.Head(ctx, k)
	if err != nil || entry.Epoch == head.Epoch { // one epoch has one line of events
		return err == nil, err
	}
	return l.Holds(ctx, k, s.Seq, s.Book.Epoch, head)
}

// weight is the size of the fold's JSON. One in a blob is large; how large, the blob says.
func (e snapshotEntry) weight() int {
	var h zstd.Header
	switch {
	case e.Blob != "":
		return inlineSnapshot
	case h.Decode(e.Zstd) == nil && h.HasFCS:
		return int(h.FrameContentSize)
	}
	return len(e.Zstd)
}

// snapshotEntry asks any replica first, and the leader when that one says nothing:
// without a snapshot the whole log has to be read.
func (l *Log) snapshotEntry(ctx context.Context, k Key) ([]byte, error) {
	try, cancel := context.WithTimeout(ctx, replicaTry)
	kv, err := l.snap.Get(try, k.suffix())
	cancel()
	if err == nil {
		return kv.Value(), nil
	}
	if errors.Is(err, jetstream.ErrKeyNotFound) || ctx.Err() != nil {
		return nil, err
	}
	return l.leaderSnapshot(ctx, k)
}

func (l *Log) leaderSnapshot(ctx context.Context, k Key) ([]byte, error) {
	m, err := l.leaderKV(ctx, "SNAPSHOTS", k.suffix())
	return m.Data, err
}

// openSnapshot returns an entry's fold.
func (l *Log) openSnapshot(ctx context.Context, entry snapshotEntry) (*event.Session, error) {
	if entry.Fold != event.FoldVersion {
		return nil, event.ErrOtherFold
	}
	packed, err := l.packed(ctx, entry)
	if err != nil {
		return nil, err
	}
	return unpack(packed)
}

// packed returns an entry's fold as it is stored.
func (l *Log) packed(ctx context.Context, entry snapshotEntry) ([]byte, error) {
	switch {
	case entry.Blob == "":
		return entry.Zstd, nil
	case l.opts.Blobs == nil:
		return nil, errors.New("snapshot is in a blob store that is not configured")
	}
	return l.opts.Blobs.Get(ctx, entry.Blob)
}

func unpack(packed []byte) (*event.Session, error) {
	plain, err := decoder().DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	return event.DecodeSession(plain)
}
