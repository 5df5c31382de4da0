package main

import (
	"fmt"
	"slices"
	"time"
)

// times are measurements of one thing.
type times []time.Duration

// at returns the quantile q.
func (t times) at(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func (t times) median() time.Duration { return t.at(.5) }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
