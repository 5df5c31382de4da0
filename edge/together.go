package edge

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"
)

// together has asked once, for no longer than most, what many want to know at a time.
// Each waits for that answer, or until its own ctx ends.
func together[T any](ctx context.Context, group *singleflight.Group, most time.Duration, ask func(context.Context) (T, error)) (T, error) {
	asked := group.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
		defer cancel()
		return ask(ctx)
	})
	select {
	case a := <-asked:
		answer, _ := a.Val.(T)
		return answer, a.Err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
