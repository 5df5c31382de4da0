package main

import (
	"fmt"
	"time"
)

const (
	cancels   = 200 // in each round
	meanwhile = 40  // runs that talk while one is cancelled
)

// cancel measures from a cancel until the model server sees its connection
// closed, while other runs talk.
func cancel(b *bench) ([]row, error) {
	s, _, err := b.staffedSite(64)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if _, err := s.streams("other", meanwhile); err != nil {
		return nil, err
	}
	var took times
	for i := range b.rounds * cancels {
		t, err := s.cancelOne(fmt.Sprintf("cancel%d", i))
		if err != nil {
			return nil, err
		}
		took = append(took, t)
	}
	p99 := took.at(.99)
	return []row{{fmt.Sprintf("`POST …/cancel` → the model's socket is closed, %d runs stream meanwhile, p99", meanwhile), "≤ 250 ms",
		fmt.Sprintf("%s (p50 %s, the longest of %d %s)", ms(p99), ms(took.median()), len(took), ms(took.at(1))), p99 <= 250*time.Millisecond}}, nil
}

// cancelOne cancels a run whose model talks.
func (s *site) cancelOne(key string) (time.Duration, error) {
	r, err := s.submit("live", "", "stream "+key)
	if err != nil {
		return 0, err
	}
	f, err := s.follow(r.RunID)
	if err != nil {
		return 0, err
	}
	defer f.close()
	if _, err := f.until(ofType("text.delta")); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := post(s.edge.url()+"/v1/runs/"+r.RunID+"/cancel", struct{}{}, nil); err != nil {
		return 0, err
	}
	at, err := s.model.closedAt(key)
	if err != nil {
		return 0, err
	}
	_, err = f.until(ofType("run.cancelled"))
	return at.Sub(began), err
}
