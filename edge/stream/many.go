package stream

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
)

// Part makes a session's request one of many: what its viewer shows goes to a bundle,
// which frames it with the cursor of all sessions. The dialect is the native one,
// without heartbeats: those do not say whose they are.
func (r Request) Part() Request {
	r.Dialect, r.Transport = quiet{}, tagged{}
	return r
}

type quiet struct{ native.Dialect }

func (quiet) Heartbeat(dialect.Heartbeat) []dialect.Message { return nil }

// tagged is how a viewer hands messages to its bundle: id, name and data of each in a
// line, with tabs between them.
type tagged struct{}

func (tagged) ContentType() string   { return "" }
func (tagged) Hello(b []byte) []byte { return b }
func (tagged) Ping(b []byte) []byte  { return b }
func (tagged) Append(b []byte, id string, m dialect.Message) []byte {
	b = append(append(b, id...), '\t')
	b = append(append(b, m.Event...), '\t')
	return append(append(b, m.Data...), '\n')
}

// A bundle writes to one client what the viewers of many sessions show. Each viewer has
// a goroutine and goes at its own pace. The bundle keeps a position for each, and
// buffers no more than they write at once.
type bundle struct {
	transport Transport
	ping      time.Duration

	mu    sync.Mutex
	out   *output
	at    Positions
	wrote time.Time
}

// ServeMany writes the streams of viewers, whose requests are Parts, as one that
// begins at their positions. It ends, and must be ended, as Viewer.Serve.
func (h *Hub) ServeMany(ctx context.Context, w http.ResponseWriter, t Transport, at Positions, viewers []*Viewer) error {
	b := &bundle{transport: t, ping: h.opts.Ping, out: newOutput(w, h.opts.WriteTimeout), at: at, wrote: time.Now()}
	defer b.out.release()
	defer b.out.endWith(ctx)()
	if err := b.hello(); err != nil {
		return cause(ctx, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i, v := range viewers {
		wg.Go(func() {
			if err := v.Serve(ctx, &part{bundle: b, i: i}); err != nil {
				cancel(err)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	if err := b.keepAlive(done); err != nil {
		cancel(err)
		<-done
	}
	return context.Cause(ctx)
}

func (b *bundle) hello() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.say(b.transport.Hello)
}

// say sends what a transport appends. The caller holds mu.
func (b *bundle) say(what func([]byte) []byte) error {
	if err := b.out.put(what(b.out.buffer())); err != nil {
		return err
	}
	return b.out.flush()
}

// keepAlive pings after silence until all is done.
func (b *bundle) keepAlive(done <-chan struct{}) error {
	tick := time.NewTicker(b.ping)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			if err := b.beat(); err != nil {
				return err
			}
		}
	}
}

func (b *bundle) beat() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.wrote) < b.ping/2 {
		return nil
	}
	b.wrote = time.Now()
	return b.say(b.transport.Ping)
}

// A part is where one viewer of a bundle writes.
type part struct {
	bundle *bundle
	i      int
}

func (p *part) Header() http.Header { return http.Header{} }
func (p *part) WriteHeader(int)     {}

// WholeLines tells a viewer so.
func (p *part) WholeLines() {}

// Hurry is for what the bundle writes: it waits for one client.
func (p *part) Hurry(within time.Duration) { p.bundle.out.endWithin(within) }

// Write takes whole lines of tagged.
func (p *part) Write(lines []byte) (int, error) {
	b := p.bundle
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range bytes.Lines(lines) {
		id, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte("\t"))
		name, data, _ := bytes.Cut(rest, []byte("\t"))
		cursor := ""
		if len(id) > 0 {
			at, err := ParsePosition(string(id))
			if err != nil {
				return 0, err
			}
			b.at.At[p.i] = at
			cursor = b.at.String()
		}
		if err := b.out.put(b.transport.Append(b.out.buffer(), cursor, dialect.Message{Event: string(name), Data: data})); err != nil {
			return 0, err
		}
	}
	b.wrote = time.Now()
	return len(lines), nil
}

// FlushError sends what all have written.
func (p *part) FlushError() error {
	p.bundle.mu.Lock()
	defer p.bundle.mu.Unlock()
	return p.bundle.out.flush()
}
