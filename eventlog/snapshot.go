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
	Fold  int       `json:"fold"`
	Seq   event.Seq `json:"seq"`
	First event.Seq `json:"first"`
	Pos   uint64    `json:"pos"`
	Prev  uint64    `json:"prev"`
	Blob  string    `json:"blob,omitempty"`
	Zstd  []byte    `json:"zstd,omitempty"`
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

// SaveSnapshot keeps the fold of committed events for later loads; head is the
// frame that holds its last event. A snapshot that is there and is as new stays.
func (l *Log) SaveSnapshot(ctx context.Context, k Key, encoded []byte, head Head) error {
	entry := snapshotEntry{Fold: event.FoldVersion, Seq: head.Seq, First: head.First, Pos: head.Pos, Prev: head.Prev}
	entry.Zstd = encoder().EncodeAll(encoded, nil)
	if len(entry.Zstd) > inlineSnapshot {
		if l.opts.Blobs == nil {
			return nil
		}
		entry.Blob = "snapshots/" + k.suffix() + "/" + head.Seq.String()
		if err := l.opts.Blobs.Put(ctx, entry.Blob, entry.Zstd); err != nil {
			return fmt.Errorf("save snapshot of %s: %w", k, err)
		}
		entry.Zstd = nil
	}
	if err := l.putSnapshot(ctx, k, entry); err != nil {
		return fmt.Errorf("save snapshot of %s: %w", k, err)
	}
	return nil
}

func (l *Log) putSnapshot(ctx context.Context, k Key, entry snapshotEntry) error {
	old, err := l.snap.Get(ctx, k.suffix())
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		_, err = l.snap.Create(ctx, k.suffix(), event.Encode(entry))
	case err != nil:
		return unavailable(err)
	default:
		err = l.replaceSnapshot(ctx, k, entry, old)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || apiCode(err) == errWrongLast || apiCode(err) == errInProcess {
		return nil // another writer's snapshot is as good
	}
	return unavailable(err)
}

// replaceSnapshot puts a newer fold in the place of an older one, and drops the
// older one's blob.
func (l *Log) replaceSnapshot(ctx context.Context, k Key, entry snapshotEntry, old jetstream.KeyValueEntry) error {
	var there snapshotEntry
	known := json.Unmarshal(old.Value(), &there) == nil
	if known && there.Fold == entry.Fold && there.Seq >= entry.Seq {
		return nil
	}
	if _, err := l.snap.Update(ctx, k.suffix(), event.Encode(entry), old.Revision()); err != nil {
		return err
	}
	if known && there.Blob != "" && there.Blob != entry.Blob && l.opts.Blobs != nil {
		return l.opts.Blobs.Delete(ctx, there.Blob)
	}
	return nil
}

// snapshot returns the stored fold if it can be used, else nil: then the events
// are folded from the beginning. An error is the gate's.
func (l *Log) snapshot(ctx context.Context, k Key, head Head, gate Gate, stored func(context.Context, Key) ([]byte, error)) (*event.Session, error) {
	value, err := stored(ctx, k)
	if err != nil {
		return nil, nil
	}
	var entry snapshotEntry
	if err = json.Unmarshal(value, &entry); err == nil && entry.Seq > head.Seq {
		return nil, nil
	}
	if err := gate.pass(ctx, entry.weight()); err != nil {
		return nil, err
	}
	var s *event.Session
	if err == nil {
		s, err = l.openSnapshot(ctx, entry)
	}
	if err != nil && !errors.Is(err, event.ErrOtherFold) {
		l.opts.Logger.Warn("snapshot not usable", "tenant", k.Tenant, "session", k.Session, "err", err)
	}
	return s, nil
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

func (l *Log) openSnapshot(ctx context.Context, entry snapshotEntry) (*event.Session, error) {
	if entry.Fold != event.FoldVersion {
		return nil, event.ErrOtherFold
	}
	if entry.Blob != "" {
		if l.opts.Blobs == nil {
			return nil, errors.New("snapshot is in a blob store that is not configured")
		}
		data, err := l.opts.Blobs.Get(ctx, entry.Blob)
		if err != nil {
			return nil, err
		}
		entry.Zstd = data
	}
	plain, err := decoder().DecodeAll(entry.Zstd, nil)
	if err != nil {
		return nil, err
	}
	return event.DecodeSession(plain)
}
