package agent

import (
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
)

// A choice is a model that the run asks, and what its file says of it.
type choice struct {
	model.Model
	config ModelConfig
	price  Price
}

// model is the one that this step asks: the agent's own, or the fallback that
// the log says. A run that fell back stays with what answers.
func (r *Run) model() choice {
	d := r.agent.Definition
	if i := r.fallback - 1; i >= 0 && i < len(r.agent.Fallback) {
		c := choice{Model: r.agent.Fallback[i]}
		if i < len(d.Fallback) {
			c.config, c.price = d.Fallback[i], d.Fallback[i].Price
		}
		return c
	}
	return choice{r.agent.Model, d.Model, d.Model.Price}
}

// another reports whether the next model may do what this one did not: it is not
// asked to answer what this one refuses, nor a request that is wrong.
func (r *Run) another(fault *model.Error) bool {
	absent := fault.Absent || fault.Code == event.CodeUnavailable || fault.Code == event.CodeModelTimeout
	return r.fallback < len(r.agent.Fallback) && (fault.Retryable || absent)
}

// fallBack closes the step without an answer, and says that the next one asks
// the next model.
func (r *Run) fallBack(step int) error {
	return r.Journal.Append(r.event(event.StepCompleted, event.StepCompletedData{Step: step, FinishReason: event.FinishStopped, Fallback: r.fallback + 1}))
}
