package edge_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/runlog-dev/runlog/edge/stream"
)

// A bundle is the readings of a client that follows many sessions with one cursor.
type bundle struct {
	parts []*reading
	start stream.Positions
	after string
}

func newBundle(parts []*reading) *bundle {
	var names []string
	for _, p := range parts {
		names = append(names, p.c.key.Session)
	}
	return &bundle{parts, stream.NewPositions(names), ""}
}

func (b *bundle) cursor() string { return b.after }

func (b *bundle) connect(snapshot bool) {
	for _, p := range b.parts {
		p.connect(snapshot)
	}
}

// take finds the session whose position the cursor moves.
func (b *bundle) take(m message) error {
	at := stream.Positions{Mark: b.start.Mark, At: make([]stream.Position, len(b.parts))}
	if err := at.Parse(m.id); err != nil || m.id == "" {
		return fmt.Errorf("%v: %.300s", err, fmt.Sprint(m))
	}
	moved := -1
	for i, p := range b.parts {
		switch {
		case at.At[i] == p.at:
		case moved >= 0:
			return fmt.Errorf("%s moves two sessions on from %s", m.id, b.after)
		default:
			moved = i
		}
	}
	if moved < 0 {
		return fmt.Errorf("%s moves no session on: %.300s", m.id, fmt.Sprint(m))
	}
	b.after = m.id
	m.id = at.At[moved].String()
	if err := b.parts[moved].take(m); err != nil {
		return fmt.Errorf("%s: %w", b.parts[moved].c.key.Session, err)
	}
	return nil
}

func (b *bundle) mayEnd(history bool) error {
	if !history {
		return errors.New("a stream of many sessions ended")
	}
	for _, p := range b.parts {
		if err := p.mayEnd(true); err != nil {
			return err
		}
	}
	return nil
}

func (b *bundle) complete() bool {
	return !slices.ContainsFunc(b.parts, func(p *reading) bool { return !p.complete() })
}
