package recorder

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics is an Observer that counts for Prometheus.
func Metrics(reg prometheus.Registerer) Observer {
	made := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return made.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	lag := made.NewGaugeVec(prometheus.GaugeOpts{Name: "runlog_recorder_lag_frames",
		Help: "Frames that are not in the catalog yet, by partition; only the recorder at work tells."}, []string{"partition"})
	events := counter("runlog_recorded_events_total", "Events projected into the catalog.")
	took := made.NewHistogram(prometheus.HistogramOpts{Name: "runlog_record_seconds", Help: "Length of the catalog's transactions.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12)})
	failed := counter("runlog_recorder_failures_total", "Times that recording had to wait for the catalog or the log.")
	passed := counter("runlog_recorder_passed_total", "Events and frames that can never be recorded.")
	return Observer{
		Lag: func(partition int, frames uint64) { lag.WithLabelValues(strconv.Itoa(partition)).Set(float64(frames)) },
		Recorded: func(_, n int, _ uint64, d time.Duration) {
			events.Add(float64(n))
			took.Observe(d.Seconds())
		},
		Failed: func(int, error) { failed.Inc() },
		Passed: func(int) { passed.Inc() },
	}
}
