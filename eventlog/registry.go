package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Announce tells the edges that a worker can run an agent; about is what they
// show of it, JSON.
func (l *Log) Announce(ctx context.Context, agent string, about []byte) error {
	if _, err := l.reg.Put(ctx, "agent."+token(agent), about); err != nil {
		return unavailable(fmt.Errorf("announce agent %s: %w", agent, err))
	}
	return nil
}

// Agent returns what was announced of an agent, or ErrNotFound.
func (l *Log) Agent(ctx context.Context, name string) ([]byte, error) {
	m, err := l.leaderKV(ctx, "REGISTRY", "agent."+token(name))
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	return m.Data, nil
}

// Agents lists the names of all announced agents, sorted.
func (l *Log) Agents(ctx context.Context) ([]string, error) {
	keys, err := l.registered(ctx, "agent.>")
	if err != nil {
		return nil, unavailable(fmt.Errorf("list agents: %w", err))
	}
	var names []string
	for _, key := range keys {
		if name, err := untoken(strings.TrimPrefix(key, "agent.")); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// registered lists the keys of the registry that a filter matches.
func (l *Log) registered(ctx context.Context, filter string) (keys []string, err error) {
	lister, err := l.reg.ListKeysFiltered(ctx, filter)
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for key := range lister.Keys() {
		keys = append(keys, key)
	}
	return keys, nil
}
