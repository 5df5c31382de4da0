package eventlog

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// All processes of an installation start at once, on a cluster that has just
// elected its leaders: each sets up what it needs, and none gives up.
func TestManyProcessesSetUpAtOnce(t *testing.T) {
	url := testservers.NATS(t, 3).URL()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var g errgroup.Group
	for range 8 {
		nc, err := nats.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		g.Go(func() error {
			_, err := Open(ctx, nc, Options{Replicas: 3})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
