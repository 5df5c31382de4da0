package recorder

import (
	"context"
	"errors"
	"fmt"

	"github.com/runlog-dev/runlog/catalog"
)

// ErrAhead: the catalog has recorded what the log does not have. JetStream was restored from
// a backup, replaced, or has lost its end in a power cut.
var ErrAhead = errors.New("the event log has lost its end: stop all edges and workers, run `runlog restored`, and start them again")

// Fits returns ErrAhead if a partition of the log ends before what the catalog has recorded
// of it. Once the log has gone on beyond that, nothing shows it any more. Any other error
// says nothing.
func Fits(ctx context.Context, source Source, db *catalog.DB) error {
	for p := range source.Partitions() {
		at, err := db.Position(ctx, p) // first: the end only grows
		if err != nil {
			return err
		}
		end, err := source.End(ctx, p)
		if err != nil {
			return err
		}
		if at > end {
			return fmt.Errorf("partition %d ends at frame %d, the catalog has recorded up to %d: %w", p, end, at, ErrAhead)
		}
	}
	return nil
}
