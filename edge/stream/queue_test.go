package stream

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Whatever comes and whoever sleeps: no row is left lying, and none is with two
// flushers.
func TestEveryRowInTheQueueIsVisited(t *testing.T) {
	const flushers, tellers, rows, times = 3, 4, 20, 2000
	var q queue
	q.init(flushers)
	all := make([]*row, rows)
	seen, asked := make([]atomic.Int64, rows), make([]atomic.Int64, rows)
	inside := make([]atomic.Int32, rows)
	at := map[*row]int{}
	for i := range all {
		all[i] = &row{dialect: []string{"a", "b", "c"}[i*i%3]}
		at[all[i]] = i
	}
	var working, telling sync.WaitGroup
	for range flushers {
		working.Go(func() {
			for r := q.take(nil); r != nil; r = q.take(r) {
				i := at[r]
				if inside[i].Add(1) != 1 {
					t.Error("two flushers are at one row")
				}
				seen[i].Store(asked[i].Load())
				inside[i].Add(-1)
			}
		})
	}
	for range tellers {
		telling.Go(func() {
			for range times {
				i := rand.IntN(rows)
				asked[i].Add(1)
				q.add(all[i])
				if rand.IntN(20) == 0 {
					time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond) // so that flushers fall asleep
				}
			}
		})
	}
	telling.Wait()
	for i := range all {
		await(t, "a row's last visit", func() bool { return seen[i].Load() == asked[i].Load() && all[i].state.Load() == resting })
	}
	q.close()
	working.Wait()
}
