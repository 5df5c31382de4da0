package stream

import (
	"context"

	"github.com/runlog-dev/runlog/eventlog"
)

// knows reports whether what the client has is what the log has: after a restore there may
// be fewer events than it has seen, or others in their place. *AheadError if it claims what
// no restore explains.
func (v *Viewer) knows(ctx context.Context, head eventlog.Head) (bool, error) {
	after := v.req.After
	switch last := after.touches(); {
	case last > head.Seq:
		epoch, err := v.hub.log.Epoch(ctx)
		if err == nil && epoch == after.Epoch {
			err = &AheadError{after, head.Seq}
		}
		return false, err
	case v.req.Numbered: // its numbers have no epoch
		return true, nil
	default:
		return v.hub.log.Holds(ctx, v.req.Key, last, after.Epoch, head)
	}
}
