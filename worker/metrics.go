package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/runlog-dev/runlog/event"
)

// Metrics is an Observer that counts for Prometheus. Ids are never labels.
func Metrics(reg prometheus.Registerer) Observer {
	queued := seconds("runlog_command_queue_seconds", "From a run's command to its start.")
	first := seconds("runlog_first_text_seconds", "From a run's start to its first text.")
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "runlog_run_seconds", Help: "Length of runs by their end.", Buckets: prometheus.ExponentialBuckets(0.05, 3, 10)}, []string{"status"})
	tokens := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "runlog_tokens_total", Help: "Tokens of ended runs."}, []string{"kind"})
	rate := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "runlog_output_tokens_per_second", Help: "Output tokens of ended runs over their length.", Buckets: prometheus.ExponentialBuckets(1, 2, 12)})
	takeovers := prometheus.NewCounter(prometheus.CounterOpts{Name: "runlog_takeovers_total", Help: "Sessions taken over from a worker that did not let go."})
	passed := prometheus.NewCounter(prometheus.CounterOpts{Name: "runlog_tickets_passed_total", Help: "Tickets handed on, or back, because the worker does not have the agent."})
	full := prometheus.NewCounter(prometheus.CounterOpts{Name: "runlog_tickets_held_back_total", Help: "Tickets handed back because their tenant has all the slots it may have."})
	reg.MustRegister(queued, first, took, tokens, rate, takeovers, passed, full)
	return Observer{
		Started:   func(d time.Duration) { queued.Observe(d.Seconds()) },
		FirstText: func(d time.Duration) { first.Observe(d.Seconds()) },
		Takeover:  takeovers.Inc,
		Passed:    passed.Inc,
		Full:      full.Inc,
		Ended: func(status event.Status, d time.Duration, u event.Usage) {
			took.WithLabelValues(string(status)).Observe(d.Seconds())
			u = u.Bounded() // a counter that is told to go down panics
			tokens.WithLabelValues("input").Add(float64(u.InputTokens))
			tokens.WithLabelValues("output").Add(float64(u.OutputTokens))
			if d > 0 && u.OutputTokens > 0 {
				rate.Observe(float64(u.OutputTokens) / d.Seconds())
			}
		},
	}
}

func seconds(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14)})
}
