package catalog

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// KeyPrefix begins every secret, so that scanners for leaked ones know them.
const KeyPrefix = "rl_"

// A Key lets its bearer act for one tenant. Its secret is not kept.
type Key struct {
	ID      string      `json:"id"`
	Tenant  string      `json:"tenant"`
	Name    string      `json:"name"`
	Scopes  []string    `json:"scopes,omitempty"`
	Created event.Time  `json:"created_at"`
	Revoked *event.Time `json:"revoked_at,omitempty"`
}

// A KeyHash is what the catalog keeps of a secret: SHA-256. The secrets are 256
// random bits, so that nothing slower would protect them better.
type KeyHash [sha256.Size]byte

// HashKey returns the hash to look a secret up by.
func HashKey(secret string) KeyHash { return sha256.Sum256([]byte(secret)) }

func (h KeyHash) String() string { return hex.EncodeToString(h[:]) }

// tenantName is what every store takes as a part of its own names.
var tenantName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CreateKey makes a key and returns its secret, which nobody can read again.
func (db *DB) CreateKey(ctx context.Context, tenant, name string, scopes []string) (secret string, _ Key, _ error) {
	if !tenantName.MatchString(tenant) {
		return "", Key{}, fmt.Errorf("create key: %q is no name of a tenant: use letters, digits, -, _ and ., at most 64, a letter or digit first", tenant)
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand aborts the process instead
	secret = KeyPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	k := Key{ID: event.NewID("key"), Tenant: tenant, Name: label(name), Scopes: scopes, Created: event.At(time.Now())}
	if err := db.insertKey(ctx, k, HashKey(secret)); err != nil {
		return "", Key{}, fmt.Errorf("create key: %w", err)
	}
	return secret, k, nil
}

func (db *DB) insertKey(ctx context.Context, k Key, hash KeyHash) error {
	return db.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `insert into keys (key_id, tenant, name, hash, scopes, created, revoked)
			values ($1, $2, $3, $4, $5, $6, 0)`,
			k.ID, k.Tenant, k.Name, hash.String(), cleanJSON(event.Encode(k.Scopes)), k.Created.UnixMicro())
		return err
	})
}

// Keys lists a tenant's keys, the oldest first, revoked ones included. An empty
// tenant lists those of all: that is for operators.
func (db *DB) Keys(ctx context.Context, tenant string) ([]Key, error) {
	keys, err := db.queryKeys(ctx, "where tenant = $1 or $1 = '' order by tenant, created, key_id", ident(tenant))
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return keys, nil
}

// KeyByHash returns the key of a secret. ErrNotFound: there never was one.
// ErrRevoked: it is returned, but must not let anyone in.
func (db *DB) KeyByHash(ctx context.Context, hash KeyHash) (Key, error) {
	return db.oneKey(ctx, "where hash = $1", hash.String())
}

// KeyByID is KeyByHash for who knows the key's id.
func (db *DB) KeyByID(ctx context.Context, id string) (Key, error) {
	return db.oneKey(ctx, "where key_id = $1", ident(id))
}

func (db *DB) oneKey(ctx context.Context, where string, arg any) (Key, error) {
	keys, err := db.queryKeys(ctx, where, arg)
	switch {
	case err != nil:
		return Key{}, fmt.Errorf("look up key: %w", err)
	case len(keys) == 0:
		return Key{}, fmt.Errorf("look up key: %w", ErrNotFound)
	case keys[0].Revoked != nil:
		return keys[0], ErrRevoked
	}
	return keys[0], nil
}

// AnyKeys reports whether a key was ever created. Revoking the last one does
// not open the door again.
func (db *DB) AnyKeys(ctx context.Context) (bool, error) {
	var n int64
	err := db.do(ctx, func(ctx context.Context) error {
		return db.read.QueryRowContext(ctx, "select count(*) from (select 1 from keys limit 1) as k").Scan(&n)
	})
	if err != nil {
		return false, fmt.Errorf("look for keys: %w", err)
	}
	return n > 0, nil
}

// RevokeKey ends a key and returns it; one that was revoked before stays as it
// is. Edges that have it cached notice when their cache runs out.
func (db *DB) RevokeKey(ctx context.Context, tenant, id string) (Key, error) {
	err := db.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "update keys set revoked = $1 where tenant = $2 and key_id = $3 and revoked = 0",
			time.Now().UnixMicro(), ident(tenant), ident(id))
		return err
	})
	var keys []Key
	if err == nil {
		keys, err = db.queryKeys(ctx, "where tenant = $1 and key_id = $2", ident(tenant), ident(id))
	}
	if err == nil && len(keys) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Key{}, fmt.Errorf("revoke key %s: %w", id, err)
	}
	return keys[0], nil
}

func (db *DB) queryKeys(ctx context.Context, tail string, args ...any) ([]Key, error) {
	var keys []Key
	err := db.do(ctx, func(ctx context.Context) error {
		rows, err := db.read.QueryContext(ctx, "select key_id, tenant, name, scopes, created, revoked from keys "+tail, args...)
		if err != nil {
			return err
		}
		keys, err = scanKeys(rows)
		return err
	})
	return keys, err
}

func scanKeys(rows *sql.Rows) ([]Key, error) {
	defer rows.Close()
	var keys []Key
	for rows.Next() {
		var k Key
		var scopes string
		if err := rows.Scan(&k.ID, &k.Tenant, &k.Name, &scopes, micros{&k.Created}, maybe{&k.Revoked}); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(scopes), &k.Scopes); err != nil {
			return nil, errors.Join(fmt.Errorf("scopes of key %s", k.ID), err)
		}
		keys = append(keys, k)
	}
	return keys, rows.Err()
}
