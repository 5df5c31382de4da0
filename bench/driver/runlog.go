package driver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// runlog appends to a session's log as a worker does: one frame in flight per
// session, compare-and-set on the session's own subject, whatever comes
// meanwhile goes into the next frame. It reads the native SSE stream of the
// edges. See docs/ARCHITECTURE.md.
type runlog struct {
	plainSSE
	nc         *nats.Conn
	inbox      string
	tenant     string
	header     string // extra request header lines
	partitions uint32

	mu   sync.Mutex
	logs map[string]*sessionLog
	byN  []*sessionLog
}

func init() {
	Register("runlog", func(o Options) (Driver, error) {
		p, err := strconv.Atoi(o.Get("partitions", "1"))
		if err != nil {
			return nil, err
		}
		nc, err := nats.Connect(o.Get("nats", "nats://127.0.0.1:4222"))
		if err != nil {
			return nil, err
		}
		d := &runlog{
			plainSSE:   plainSSE{addrList(o.Get("addr", "127.0.0.1:8080")), "/v1/sessions/"},
			nc:         nc,
			inbox:      nats.NewInbox(),
			tenant:     o.Get("tenant", "default"),
			partitions: uint32(p),
			logs:       map[string]*sessionLog{},
		}
		if a := o.Get("auth", ""); a != "" {
			d.header = "Authorization: " + a + "\r\n"
		}
		_, err = nc.Subscribe(d.inbox+".*", d.acked)
		return d, err
	})
}

// sessionLog is the writer's side of one session. mu guards what follows it.
type sessionLog struct {
	id, subject, reply string

	mu       sync.Mutex
	idle     *sync.Cond
	buf      []byte
	inFlight bool
	last     uint64 // stream sequence of the session's last frame
	seq      uint64 // of the last event
	sent     uint64 // seq of the last event of the last frame
	err      error
}

// Setup opens each session with a run, so that an edge knows it.
func (d *runlog) Setup(topics []string) error {
	for _, t := range topics {
		l := d.log(t)
		l.mu.Lock()
		l.event("session.created", `{"agent":"bench"}`)
		l.event("run.started", `{"agent":"bench","input":"bench"}`)
		d.send(l)
		l.mu.Unlock()
	}
	return d.flush()
}

func (d *runlog) log(topic string) *sessionLog {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l, ok := d.logs[topic]; ok {
		return l
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%s", d.tenant, topic)
	l := &sessionLog{
		id:      topic,
		subject: fmt.Sprintf("log.%d.%s.%s", h.Sum32()%d.partitions, d.tenant, topic),
		reply:   d.inbox + "." + strconv.Itoa(len(d.byN)),
	}
	l.idle = sync.NewCond(&l.mu)
	d.logs[topic] = l
	d.byN = append(d.byN, l)
	return l
}

// event adds one line to the next frame; data is JSON. The caller holds mu.
func (l *sessionLog) event(kind, data string) {
	l.seq++
	n := strconv.FormatUint(l.seq, 10)
	b := append(l.buf, `{"v":1,"seq":`...)
	b = append(b, n...)
	b = append(b, `,"id":"`...)
	b = append(append(append(b, l.id...), '-'), n...)
	b = append(append(b, `","type":"`...), kind...)
	b = append(b, `","time":"`...)
	b = time.Now().UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00")
	b = append(append(b, `","session_id":"`...), l.id...)
	b = append(append(b, `","run_id":"run-`...), l.id...)
	b = append(append(b, `","trace_id":"trace-`...), l.id...)
	b = append(append(b, `","data":`...), data...)
	l.buf = append(b, '}', '\n')
}

// maxFrame keeps a frame well below what a server takes.
const maxFrame = 200 << 10

// send publishes the waiting events, up to maxFrame, as one frame. The caller holds mu.
func (d *runlog) send(l *sessionLog) {
	m := nats.NewMsg(l.subject)
	m.Reply = l.reply
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(l.last, 10))
	m.Data, l.buf = l.buf, nil
	if len(m.Data) > maxFrame {
		cut := bytes.LastIndexByte(m.Data[:maxFrame], '\n') + 1
		m.Data, l.buf = m.Data[:cut:cut], append([]byte(nil), m.Data[cut:]...)
	}
	n := uint64(bytes.Count(m.Data, []byte{'\n'}))
	m.Header.Set("Runlog-Seq", fmt.Sprintf("%d-%d", l.sent+1, l.sent+n))
	l.sent += n
	l.inFlight = true
	if err := d.nc.PublishMsg(m); err != nil {
		l.err = err
	}
}

func (d *runlog) acked(m *nats.Msg) {
	n, err := strconv.Atoi(m.Subject[len(d.inbox)+1:])
	d.mu.Lock()
	if err != nil || n >= len(d.byN) {
		d.mu.Unlock()
		return
	}
	l := d.byN[n]
	d.mu.Unlock()
	var ack struct {
		Seq   uint64
		Error *struct{ Description string }
	}
	err = json.Unmarshal(m.Data, &ack)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight = false
	switch {
	case err != nil:
		l.err = fmt.Errorf("append to %s: %q: %w", l.id, m.Data, err)
	case ack.Error != nil:
		l.err = fmt.Errorf("append to %s: %s", l.id, ack.Error.Description)
	default:
		l.last = ack.Seq
		if len(l.buf) > 0 {
			d.send(l)
			return
		}
	}
	l.idle.Broadcast()
}

func (d *runlog) flush() error {
	d.mu.Lock()
	all := append([]*sessionLog(nil), d.byN...)
	d.mu.Unlock()
	for _, l := range all {
		l.mu.Lock()
		for l.err == nil && (l.inFlight || len(l.buf) > 0) {
			l.idle.Wait()
		}
		err := l.err
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *runlog) Request(topic string, cursor []byte) []byte {
	b := append([]byte("GET "+d.path+topic+"/events HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\n"), d.header...)
	if len(cursor) > 0 {
		b = append(append(append(b, "Last-Event-ID: "...), cursor...), "\r\n"...)
	}
	return append(b, "\r\n"...)
}

func (d *runlog) Decode(m *Message, s Sink) {
	if string(m.Event) == "custom" || len(m.Event) == 0 {
		s.Event(m.Data)
	}
	if len(m.ID) > 0 {
		s.Cursor(m.ID)
	}
}

func (d *runlog) NewPublisher() (Publisher, error) { return runlogPub{d}, nil }

type runlogPub struct{ d *runlog }

func (p runlogPub) Publish(topic string, payload []byte) error {
	l := p.d.log(topic)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.event("custom", `{"name":"bench","value":`+string(payload)+`}`)
	if !l.inFlight {
		p.d.send(l)
	}
	return nil
}

func (p runlogPub) Flush() error { return p.d.flush() }
func (p runlogPub) Close() error { return nil }
