package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// A DeadLetter is a run that was given up because it brought its workers down,
// kept until somebody redrives or drops it. The log has the run's failure; this
// is the list to work through.
type DeadLetter struct {
	RunID     string     `json:"run_id"`
	SessionID string     `json:"session_id"`
	TraceID   string     `json:"trace_id,omitempty"`
	Agent     string     `json:"agent"`
	Reason    string     `json:"reason"`
	Claims    int        `json:"claims"` // workers that were lost with it
	Time      event.Time `json:"time"`
}

func deadKey(tenant, runID string) string { return "dead." + token(tenant) + "." + token(runID) }

// Bury puts a run on the list of dead letters. Burying it again changes nothing.
func (l *Log) Bury(ctx context.Context, tenant string, d DeadLetter) error {
	_, err := l.reg.Create(ctx, deadKey(tenant, d.RunID), event.Encode(d))
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return unavailable(fmt.Errorf("bury run %s: %w", d.RunID, err))
	}
	return nil
}

// DeadLetters lists a tenant's, oldest first.
func (l *Log) DeadLetters(ctx context.Context, tenant string) ([]DeadLetter, error) {
	keys, err := l.registered(ctx, "dead."+token(tenant)+".>")
	if err != nil {
		return nil, unavailable(fmt.Errorf("list dead letters: %w", err))
	}
	var list []DeadLetter
	for _, key := range keys {
		d, err := l.dead(ctx, key)
		if errors.Is(err, ErrNotFound) {
			continue // dropped meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list dead letters: %w", err)
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b DeadLetter) int {
		return cmp.Or(a.Time.Compare(b.Time.Time), strings.Compare(a.RunID, b.RunID))
	})
	return list, nil
}

// DeadLetter returns one, or ErrNotFound.
func (l *Log) DeadLetter(ctx context.Context, tenant, runID string) (DeadLetter, error) {
	d, err := l.dead(ctx, deadKey(tenant, runID))
	if err != nil {
		return d, fmt.Errorf("dead letter %s: %w", runID, err)
	}
	return d, nil
}

func (l *Log) dead(ctx context.Context, key string) (d DeadLetter, err error) {
	m, err := l.leaderKV(ctx, "REGISTRY", key)
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(m.Data, &d)
}

// DropDeadLetter takes a run off the list. One that is not there is fine.
func (l *Log) DropDeadLetter(ctx context.Context, tenant, runID string) error {
	if err := l.reg.Purge(ctx, deadKey(tenant, runID)); err != nil {
		return unavailable(fmt.Errorf("drop dead letter %s: %w", runID, err))
	}
	return nil
}
