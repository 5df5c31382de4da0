package eventlog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Secret returns 32 random bytes of a name, which all processes of the
// installation share: whoever asks first makes them, and they never change.
func (l *Log) Secret(ctx context.Context, name string) ([]byte, error) {
	key := "secret." + token(name)
	for range 2 {
		m, err := l.leaderKV(ctx, "REGISTRY", key)
		if err == nil {
			return m.Data, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("secret %s: %w", name, err)
		}
		fresh := make([]byte, 32)
		_, _ = rand.Read(fresh) // never fails
		_, err = l.reg.Create(ctx, key, fresh)
		if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
			return nil, unavailable(fmt.Errorf("make secret %s: %w", name, err))
		}
	}
	return nil, unavailable(fmt.Errorf("secret %s: made, but not there: %w", name, ErrUnavailable))
}
