package edge

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// metrics of an edge. No label has a value that clients choose.
type metrics struct {
	requests   *prometheus.CounterVec
	took       *prometheus.HistogramVec
	streams    prometheus.Gauge
	ended      *prometheus.CounterVec
	submit     prometheus.Histogram
	firstToken prometheus.Histogram
	lag        prometheus.Histogram
	sent       prometheus.Counter
	sentBytes  prometheus.Counter
	replayed   prometheus.Histogram
	replayedB  prometheus.Histogram
	paged      prometheus.Counter
	pagedB     prometheus.Counter
	resets     prometheus.Counter
	refused    *prometheus.CounterVec
	woken      prometheus.Counter
}

// newMetrics registers the metrics; with a nil registerer they go nowhere.
func newMetrics(reg prometheus.Registerer) *metrics {
	fast := prometheus.ExponentialBuckets(0.0001, 2, 18) // 0.1 ms to 13 s
	sizes := prometheus.ExponentialBuckets(1, 4, 12)
	made := promauto.With(reg)
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return made.NewHistogram(prometheus.HistogramOpts{Namespace: "runlog", Subsystem: "edge", Name: name, Help: help, Buckets: buckets})
	}
	counter := func(name, help string) prometheus.Counter {
		return made.NewCounter(prometheus.CounterOpts{Namespace: "runlog", Subsystem: "edge", Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return made.NewCounterVec(prometheus.CounterOpts{Namespace: "runlog", Subsystem: "edge", Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests: counters("requests_total", "Requests by route and status.", "route", "status"),
		took: made.NewHistogramVec(prometheus.HistogramOpts{Namespace: "runlog", Subsystem: "edge", Name: "request_seconds",
			Help: "Time to answer, of requests that are not streams.", Buckets: fast}, []string{"route"}),
		streams: made.NewGauge(prometheus.GaugeOpts{Namespace: "runlog", Subsystem: "edge", Name: "open_streams",
			Help: "Streams open now."}),
		ended:      counters("streams_ended_total", "Streams that ended, by why.", "reason"),
		submit:     histogram("submit_to_start_seconds", "From a streamed submission to its run.started.", fast),
		firstToken: histogram("time_to_first_token_seconds", "From a streamed submission to its first text.", prometheus.ExponentialBuckets(0.005, 2, 16)),
		lag:        histogram("event_to_client_seconds", "From an event's time to its write to a client that follows live.", fast),
		sent:       counter("events_sent_total", "Events written to clients."),
		sentBytes:  counter("event_bytes_sent_total", "Bytes of events written to clients."),
		replayed:   histogram("replay_events", "Events that a viewer got before it had caught up.", sizes),
		replayedB:  histogram("replay_bytes", "Bytes that a viewer got before it had caught up.", prometheus.ExponentialBuckets(256, 4, 14)),
		paged:      counter("log_events_read_total", "Events read from the log for single viewers."),
		pagedB:     counter("log_bytes_read_total", "Bytes read from the log for single viewers."),
		resets:     counter("resets_total", "Viewers whose position was no longer kept."),
		refused:    counters("refused_total", "Requests, streams and connections over a limit, by which.", "limit"),
		woken:      counter("parked_streams_woken_total", "Times that a parked stream had to read the log or to wait for its client."),
	}
	for _, reason := range endings {
		m.ended.WithLabelValues(reason)
	}
	for _, limit := range refusals {
		m.refused.WithLabelValues(limit)
	}
	return m
}

// watch registers gauges of what a hub holds.
func (m *metrics) watch(reg prometheus.Registerer, hub *stream.Hub) {
	if reg == nil {
		return
	}
	gauge := func(name, help string, of func(stream.Holdings) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "runlog", Subsystem: "edge", Name: name, Help: help},
			func() float64 { return of(hub.Holds()) }))
	}
	gauge("parked_streams", "Streams that have no goroutine now.", func(h stream.Holdings) float64 { return float64(h.Parked) })
	gauge("watched_sessions", "Sessions that are followed for viewers, or were lately.", func(h stream.Holdings) float64 { return float64(h.Topics) })
	gauge("ring_bytes", "Latest events of watched sessions in memory, about.", func(h stream.Holdings) float64 { return float64(h.Rings) })
	gauge("log_readers", "Viewers that read the log, or wait for their turn to.", func(h stream.Holdings) float64 { return float64(h.Reading) })
	gauge("told_bytes", "Large conversations that clients have not taken yet.", func(h stream.Holdings) float64 { return float64(h.Told) })
}

// refusals are why an edge refuses what would be right otherwise.
var refusals = []string{"tenant_rate", "tenant_streams", "address_rate", "address_streams", "address_connections", "connections", "streams", "memory", "reads", "bodies", "conversations"}

// refuse counts what is refused, by one of refusals, and returns what it is answered.
func (m *metrics) refuse(why string, p *Problem) *Problem {
	m.refused.WithLabelValues(why).Inc()
	return p
}

// request counts a request that is over.
func (m *metrics) request(c *call, took time.Duration) {
	route := c.route
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(c.status)).Inc()
	if c.ended == "" && !strings.HasSuffix(route, "/cancel") {
		m.took.WithLabelValues(route).Observe(took.Seconds())
	}
}

// observer is how a hub feeds the metrics.
func (m *metrics) observer() stream.Observer {
	return stream.Observer{
		Sent: func(events, bytes int) { m.sent.Add(float64(events)); m.sentBytes.Add(float64(bytes)) },
		Lag:  func(d time.Duration) { m.lag.Observe(d.Seconds()) },
		Replayed: func(events, bytes int) {
			m.replayed.Observe(float64(events))
			m.replayedB.Observe(float64(bytes))
		},
		Paged:   func(events, bytes int) { m.paged.Add(float64(events)); m.pagedB.Add(float64(bytes)) },
		Reset:   m.resets.Inc,
		Woken:   m.woken.Inc,
		Crowded: m.refused.WithLabelValues("conversations").Inc,
	}
}

// firsts returns what is called with the events of a new run's stream, until it returns
// false: it times the run's start and its first text.
func (m *metrics) firsts(began time.Time) func(event.Event) bool {
	return func(e event.Event) bool {
		switch {
		case e.Type == event.RunStarted:
			m.submit.Observe(time.Since(began).Seconds())
		case e.Type == event.TextDelta:
			m.firstToken.Observe(time.Since(began).Seconds())
			return false
		case e.Type.Terminal():
			return false
		}
		return true
	}
}
