package catalogtest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/catalog"
)

func testKeys(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	if any, err := db.AnyKeys(ctx); err != nil || any {
		t.Fatalf("AnyKeys of an empty catalog: %v, %v", any, err)
	}
	secret, key, err := db.CreateKey(ctx, "acme", "ci\x00", []string{"runs", "audit"})
	must(t, err)
	if !strings.HasPrefix(secret, catalog.KeyPrefix) || len(secret) < len(catalog.KeyPrefix)+43 {
		t.Errorf("secret %q has not the prefix and 32 bytes", secret)
	}
	found := get(db.KeyByHash(ctx, catalog.HashKey(secret)))(t)
	if !reflect.DeepEqual(found, key) {
		t.Errorf("found %+v, created %+v", found, key)
	}
	if byID := get(db.KeyByID(ctx, key.ID))(t); !reflect.DeepEqual(byID, key) {
		t.Errorf("found by id %+v, created %+v", byID, key)
	}
	_, err = db.KeyByHash(ctx, catalog.HashKey(secret+"x"))
	wantErr(t, err, catalog.ErrNotFound)
	_, err = db.KeyByID(ctx, key.ID+"x")
	wantErr(t, err, catalog.ErrNotFound)
	second, _, err := db.CreateKey(ctx, "beta", "app", nil)
	must(t, err)
	if second == secret {
		t.Error("two keys have one secret")
	}
	if keys := get(db.Keys(ctx, "acme"))(t); len(keys) != 1 || keys[0].ID != key.ID {
		t.Errorf("keys of acme: %+v", keys)
	}
	if keys := get(db.Keys(ctx, ""))(t); len(keys) != 2 {
		t.Errorf("keys of all: %+v", keys)
	}
	if _, _, err := db.CreateKey(ctx, "a b", "", nil); err == nil {
		t.Error("a tenant with a space was taken")
	}
}

func testRevoked(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	secret, key, err := db.CreateKey(ctx, "acme", "ci", nil)
	must(t, err)
	revoked := get(db.RevokeKey(ctx, "acme", key.ID))(t)
	if revoked.Revoked == nil || revoked.Revoked.Before(key.Created.Time) {
		t.Fatalf("revoked key is %+v", revoked)
	}
	_, err = db.KeyByHash(ctx, catalog.HashKey(secret))
	wantErr(t, err, catalog.ErrRevoked)
	byID, err := db.KeyByID(ctx, key.ID)
	wantErr(t, err, catalog.ErrRevoked)
	if byID.ID != key.ID {
		t.Errorf("a revoked key is told as %+v", byID)
	}
	again := get(db.RevokeKey(ctx, "acme", key.ID))(t)
	if !again.Revoked.Equal(revoked.Revoked.Time) {
		t.Errorf("revoked twice: %v, then %v", revoked.Revoked, again.Revoked)
	}
	if any := get(db.AnyKeys(ctx))(t); !any {
		t.Error("revoking the only key opens the door: AnyKeys is false")
	}
}

func testForeignKey(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	secret, key, err := db.CreateKey(ctx, "acme", "ci", nil)
	must(t, err)
	_, err = db.RevokeKey(ctx, "beta", key.ID)
	wantErr(t, err, catalog.ErrNotFound)
	get(db.KeyByHash(ctx, catalog.HashKey(secret)))(t)
}
