package worker

import (
	"context"
	"time"

	"github.com/runlog-dev/runlog/audit"
)

// audit holds what a test has left in the log to all that a log promises,
// whatever the test was about. Work may be left, since the workers are gone.
func (b *bench) audit() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, _, err := audit.New(b.log, audit.Options{Grace: time.Hour}).Session(ctx, key)
	if err != nil {
		b.t.Errorf("audit: %v", err)
	}
	for _, f := range found {
		b.t.Errorf("audit: %s", f)
	}
}
