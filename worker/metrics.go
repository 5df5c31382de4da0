package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/runlog-dev/runlog/event"
)

// Metrics is an Observer that counts for Prometheus. Ids are never labels.
func Metrics(reg prometheus.Registerer) Observer {
	made := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return made.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return made.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	short := prometheus.ExponentialBuckets(0.001, 2.5, 14) // 1 ms to 149 s
	queued := histogram("runlog_command_queue_seconds", "From a run's command to its start.", short)
	first := histogram("runlog_first_text_seconds", "From a run's start to its first text.", short)
	took := made.NewHistogramVec(prometheus.HistogramOpts{Name: "runlog_run_seconds", Help: "Length of runs by their end.",
		Buckets: prometheus.ExponentialBuckets(0.05, 3, 10)}, []string{"status"})
	tokens := made.NewCounterVec(prometheus.CounterOpts{Name: "runlog_tokens_total", Help: "Tokens of ended runs."}, []string{"kind"})
	rate := histogram("runlog_output_tokens_per_second", "Output tokens of ended runs over their length.", prometheus.ExponentialBuckets(1, 2, 12))
	takeovers := counter("runlog_takeovers_total", "Sessions taken over from a worker that did not let go.")
	passed := counter("runlog_tickets_passed_total", "Tickets handed on, or back, because the worker does not have the agent.")
	full := counter("runlog_tickets_held_back_total", "Tickets handed back because their tenant has all the slots it may have.")
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
