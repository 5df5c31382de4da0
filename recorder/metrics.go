package recorder

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is an Observer that counts for Prometheus.
func Metrics(reg prometheus.Registerer) Observer {
	lag := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "runlog_recorder_lag_frames", Help: "Frames that are not in the catalog yet, by partition; only the recorder at work tells."}, []string{"partition"})
	events := prometheus.NewCounter(prometheus.CounterOpts{Name: "runlog_recorded_events_total", Help: "Events projected into the catalog."})
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "runlog_record_seconds", Help: "Length of the catalog's transactions.", Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12)})
	failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "runlog_recorder_failures_total", Help: "Times that recording had to wait for the catalog or the log."})
	passed := prometheus.NewCounter(prometheus.CounterOpts{Name: "runlog_recorder_passed_total", Help: "Events and frames that can never be recorded."})
	reg.MustRegister(lag, events, took, failed, passed)
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
