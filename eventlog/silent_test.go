package eventlog

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// A replica that is cut off is asked like all others, until its neighbours notice.
// Whoever gets no answer asks another one, and reads all that there is.
func TestAReplicaThatSaysNothingIsPassedOver(t *testing.T) {
	c := testservers.NATS(t, 1)
	l := dial(t, c.URL(), Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	const frames = 20
	for i := range frames {
		if _, err := w.Append(custom(i)); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		url, lost := mute(t, c.Node(0).Addr())
		fresh := dial(t, url, Options{}) // which remembers nothing
		began := time.Now()
		s, head, err := fresh.Load(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if s.Seq != event.Seq(frames) || head.Seq != s.Seq {
			t.Errorf("loaded up to %d, the head is %d", s.Seq, head.Seq)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("that took %v", took)
		}
		if lost.Load() == 0 {
			t.Error("every request was answered")
		}
	}
}

// mute is the way to a cluster of which every other replica says nothing: of the
// direct reads that go through it, the first is lost, and every other one after it.
func mute(t *testing.T, upstream string) (url string, lost *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	lost = &atomic.Int32{}
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, server); client.Close() }()
			go func() { forward(server, client, lost); server.Close() }()
		}
	}()
	return "nats://" + ln.Addr().String(), lost
}

// forward passes on what a client says.
func forward(to io.Writer, from io.Reader, lost *atomic.Int32) {
	in := bufio.NewReader(from)
	reads := 0
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		f := strings.Fields(string(line))
		if len(f) > 2 && (f[0] == "PUB" || f[0] == "HPUB") {
			size, _ := strconv.Atoi(f[len(f)-1])
			payload := make([]byte, size+2)
			if _, err := io.ReadFull(in, payload); err != nil {
				return
			}
			if strings.HasPrefix(f[1], "$JS.API.DIRECT.GET.") {
				if reads++; reads%2 == 1 {
					lost.Add(1)
					continue
				}
			}
			line = append(line, payload...)
		}
		if _, err := to.Write(line); err != nil {
			return
		}
	}
}

// A reader that takes longer for a batch than the batch may take gets all of it: whoever
// waits for room in the middle of a load, for one.
func TestASlowReaderGetsWhatHasCome(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	msgs := make(chan *nats.Msg, 1)
	for range 100 {
		m := nats.NewMsg("x")
		m.Header.Set(hdrPos, "7")
		m.Header.Set(hdrSeq, "1-1")
		m.Data = []byte("{}\n")
		msgs <- m
		if f, _, err := nextOf(over, Key{"t", "s"}, msgs); err != nil || f.Pos != 7 {
			t.Fatal(f, err)
		}
	}
	if _, _, err := nextOf(over, Key{"t", "s"}, msgs); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
