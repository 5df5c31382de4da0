package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"

	"ssebench/driver"
	"ssebench/engine"
)

// The sessions of the resume figure: events are in the log one by one, among
// those of others.
const (
	longSession  = 10_000
	shortSession = 200
	missed       = 100
	others       = 10
)

// resume measures how a client comes back to the last 100 events of a long and of
// a short session: what it is sent, and how long until it has them.
func resume(b *bench) ([]row, error) {
	server, err := b.server()
	if err != nil {
		return nil, err
	}
	defer server.stop()
	saw, err := b.edge(server) // makes the streams
	if err != nil {
		return nil, err
	}
	defer saw.stop()
	h, err := newHistory("nats://" + server.addr)
	if err != nil {
		return nil, err
	}
	live, err := h.fill(saw.addr)
	if err != nil {
		return nil, err
	}
	saw.stop()
	edge, err := b.edge(server) // has not seen the events live
	if err != nil {
		return nil, err
	}
	defer edge.stop()
	var warmLong, warmShort times
	var sent int
	for range 100 * b.rounds {
		if err := h.both(edge.addr, &warmLong, &warmShort, &sent); err != nil {
			return nil, err
		}
	}
	edge.stop()
	var coldLong, coldShort times
	for range 3 * b.rounds {
		if err := b.cold(h, server, &coldLong, &coldShort); err != nil {
			return nil, err
		}
	}
	ratio := float64(sent) / float64(live)
	return []row{
		{"resume with the last 100 of 10,000 events missed: bytes, against live", "≤ 1.05 ×", fmt.Sprintf("%.3f × (%d against %d)", ratio, sent, live), ratio <= 1.05},
		timeRow("the same: time, against a session of 200 events, fresh edge process", coldLong, coldShort),
		timeRow("the same, edge that has served before", warmLong, warmShort),
	}, nil
}

func timeRow(what string, long, short times) row {
	ratio := float64(long.median()) / float64(short.median())
	return row{what, "≤ 2 ×", fmt.Sprintf("%.2f × (%s against %s)", ratio, ms(long.median()), ms(short.median())), ratio <= 2}
}

// cold asks a fresh edge for the long session and another one for the short one.
func (b *bench) cold(h *history, server *proc, long, short *times) error {
	for _, one := range []struct {
		session string
		head    int
		into    *times
	}{{h.long, h.longHead, long}, {h.short, h.shortHead, short}} {
		edge, err := b.edge(server)
		if err != nil {
			return err
		}
		took, _, err := comeBack(edge.addr, one.session, one.head)
		edge.stop()
		if err != nil {
			return err
		}
		*one.into = append(*one.into, took)
	}
	return nil
}

// A history is the sessions in the log, and where they end.
type history struct {
	d                   driver.Driver
	p                   driver.Publisher
	long, short         string
	noise               []string
	longHead, shortHead int
}

func newHistory(url string) (*history, error) {
	d, err := driver.Open("runlog", driver.Options{"nats": url})
	if err != nil {
		return nil, err
	}
	h := &history{d: d, long: "long", short: "short"}
	for i := range others {
		h.noise = append(h.noise, "other-"+strconv.Itoa(i))
	}
	if h.p, err = d.NewPublisher(); err != nil {
		return nil, err
	}
	if err := d.Setup(append([]string{h.long, h.short}, h.noise...)); err != nil {
		return nil, err
	}
	h.longHead, h.shortHead = 2, 2 // what Setup writes
	return h, nil
}

// fill writes the sessions. The last events of the long one are watched by a
// client: live is what it was sent for them.
func (h *history) fill(edge string) (live int, err error) {
	for h.longHead < longSession-missed {
		withShort := longSession-h.longHead <= shortSession-h.shortHead
		if err := h.append(withShort); err != nil {
			return 0, err
		}
	}
	v, err := view(edge, h.long, h.longHead)
	if err != nil {
		return 0, err
	}
	defer v.conn.Close()
	if err := v.hello(); err != nil {
		return 0, err
	}
	before := v.count.n
	for h.longHead < longSession {
		if err := h.append(true); err != nil {
			return 0, err
		}
		if err := v.until(h.longHead); err != nil {
			return 0, err
		}
	}
	return v.count.n - before, nil
}

// append adds one event to each session, as a frame of its own.
func (h *history) append(withShort bool) error {
	topics := append([]string{h.long}, h.noise...)
	h.longHead++
	if withShort {
		topics = append(topics, h.short)
		h.shortHead++
	}
	for _, t := range topics {
		if err := h.p.Publish(t, engine.AppendPayload(nil, 0, uint64(h.longHead), 0, 0, tailSize)); err != nil {
			return err
		}
	}
	return h.p.Flush()
}

func (h *history) both(edge string, long, short *times, sent *int) error {
	took, n, err := comeBack(edge, h.long, h.longHead)
	if err != nil {
		return err
	}
	*long, *sent = append(*long, took), n
	took, _, err = comeBack(edge, h.short, h.shortHead)
	*short = append(*short, took)
	return err
}

// comeBack resumes a session before its last missed events; it returns how long
// until all are there, and the bytes of the body, chunks included.
func comeBack(edge, session string, head int) (took time.Duration, sent int, err error) {
	began := time.Now()
	v, err := view(edge, session, head-missed)
	if err != nil {
		return 0, 0, err
	}
	defer v.conn.Close()
	if err := v.until(head); err != nil {
		return 0, 0, fmt.Errorf("resume of %s: %w", session, err)
	}
	return time.Since(began), v.count.n - v.header, nil
}

// A viewer is a client of one stream that counts what it is sent.
type viewer struct {
	conn   net.Conn
	count  *counter
	header int // bytes of the answer's header
	body   *bufio.Reader
}

type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// view opens a session's stream after a position.
func view(edge, session string, after int) (*viewer, error) {
	conn, err := net.Dial("tcp", edge)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	v := &viewer{conn: conn, count: &counter{Reader: conn}}
	_, err = fmt.Fprintf(conn, "GET /v1/sessions/%s/events HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nLast-Event-ID: %d\r\n\r\n", session, edge, after)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	in := bufio.NewReaderSize(v.count, 64<<10)
	for line := []byte(nil); !bytes.Equal(line, []byte("\r\n")); v.header += len(line) {
		if line, err = in.ReadBytes('\n'); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		if v.header == 0 && !bytes.Contains(line, []byte(" 200 ")) {
			return nil, errors.Join(fmt.Errorf("stream of %s: %s", session, line), conn.Close())
		}
	}
	v.body = bufio.NewReaderSize(httputil.NewChunkedReader(in), 64<<10)
	return v, nil
}

// hello reads what a stream begins with.
func (v *viewer) hello() error { return v.block(func([]byte) bool { return true }) }

// until reads through the event with a seq.
func (v *viewer) until(seq int) error {
	id := []byte("id: " + strconv.Itoa(seq) + "\n")
	return v.block(func(line []byte) bool { return bytes.Equal(line, id) })
}

// block reads through the end of the block that has a line.
func (v *viewer) block(has func(line []byte) bool) error {
	for found := false; ; {
		line, err := v.body.ReadBytes('\n')
		if err != nil {
			return err
		}
		if found = found || has(line); found && len(line) == 1 {
			return nil
		}
	}
}
