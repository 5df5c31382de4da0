package eventlog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics is an Observer that counts for Prometheus. Ids are never labels.
func Metrics(reg prometheus.Registerer) Observer {
	made := promauto.With(reg)
	latency := made.NewHistogram(prometheus.HistogramOpts{
		Name: "runlog_append_seconds", Help: "From a frame's cut to its commit.",
		Buckets: prometheus.ExponentialBuckets(0.00005, 2.5, 14)})
	events := made.NewCounter(prometheus.CounterOpts{Name: "runlog_appended_events_total", Help: "Events committed."})
	bytes := made.NewCounter(prometheus.CounterOpts{Name: "runlog_appended_bytes_total", Help: "Bytes of committed frames."})
	fenced := made.NewCounter(prometheus.CounterOpts{Name: "runlog_fenced_writers_total", Help: "Writers ended by another worker's claim."})
	gaps := made.NewCounterVec(prometheus.CounterOpts{
		Name: "runlog_live_gaps_total", Help: "Gaps in the live feed, by what showed them: a later frame (log) or a head check (check)."}, []string{"how"})
	return Observer{
		Appended: func(took time.Duration, n, size int) {
			latency.Observe(took.Seconds())
			events.Add(float64(n))
			bytes.Add(float64(size))
		},
		Fenced: fenced.Inc,
		Gap:    func(how string) { gaps.WithLabelValues(how).Inc() },
	}
}
