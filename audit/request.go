package audit

import (
	"fmt"
	"math/bits"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/event/refusal"
)

// sample builds a request for a model of what was read so far, for a sample of
// prefixes: each of the first 63, then 32 from every doubling of the log.
func (c *Checker) sample(e event.Event) {
	if c.broken || c.request == nil || !sampled(e.Seq) {
		return
	}
	c.samples++
	if err := c.request(c.fold); err != nil {
		c.wrong(RequestValid, "the log up to here gives no valid request: %v", err)
	}
}

// requests builds the requests that continue a session, of both kinds.
func requests(s *event.Session) error {
	if err := refusal.Chat(s.OpenAIMessages("You are.")); err != nil {
		return fmt.Errorf("chat completions: %w", err)
	}
	_, messages := s.AnthropicMessages("You are.")
	if err := refusal.Messages(messages); err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	return nil
}

func sampled(seq event.Seq) bool {
	octave := bits.Len64(uint64(seq)) // seq < 1<<octave
	return octave <= 6 || seq&(1<<(octave-6)-1) == 0
}
