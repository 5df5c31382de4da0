package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// errDamaged: what is stored under an artifact's name is not what a commit
// stored there. Delete removes it.
var errDamaged = errors.New("damaged artifact; delete it")

// record is the stored form of an Info. It repeats the key, so that a store
// that folds two names into one (a file system without case, say) shows the
// second as absent, not as the first one's bytes.
type record struct {
	Tenant  string `json:"tenant"`
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Media   string `json:"media_type"`
	Write   string `json:"write"` // random, of the write that made it: tells our commit from a rival's
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256,omitempty"` // empty: not sealed yet (see s3write.go)
	Created int64  `json:"created_ms,omitempty"`
}

// newRecord begins a write that a store is asked for.
func newRecord(ctx context.Context, key Key, meta Meta) (record, error) {
	if err := key.Check(); err != nil {
		return record{}, err
	}
	meta, err := meta.normalized()
	if err != nil {
		return record{}, err
	}
	if err := ctx.Err(); err != nil {
		return record{}, fmt.Errorf("create artifact %s: %w", key, err)
	}
	return record{Tenant: key.Tenant, ID: key.ID, Name: meta.Name, Media: meta.MediaType, Write: writeID()}, nil
}

// sealed is r with what is known only at the end of the write.
func (r record) sealed(bytes int64, sha256 string, now time.Time) record {
	r.Bytes, r.SHA256, r.Created = bytes, sha256, now.UnixMilli()
	return r
}

func (r record) key() Key { return Key{r.Tenant, r.ID} }

func (r record) info() Info {
	return Info{
		Key:     r.key(),
		Meta:    Meta{Name: r.Name, MediaType: r.Media},
		Bytes:   r.Bytes,
		SHA256:  r.SHA256,
		Created: time.UnixMilli(r.Created).UTC(),
	}
}

func (r record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return b
}

func decodeRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("decode record: %w", err)
	}
	return r, nil
}
