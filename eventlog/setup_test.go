package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// All processes of an installation start at once, on a cluster that has just
// elected its leaders: each sets up what it needs, and none gives up. Some have another
// number of replicas: who comes first decides.
func TestManyProcessesSetUpAtOnce(t *testing.T) {
	url := testservers.NATS(t, 3).URL()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var g errgroup.Group
	for i := range 8 {
		nc, err := nats.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		g.Go(func() error {
			_, err := Open(ctx, nc, Options{Replicas: 3 - 2*(i%2)})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// A process that starts before all nodes of a cluster are there waits for them: the
// server refuses streams with as many replicas as the cluster has nodes.
func TestSetUpWaitsForAllNodes(t *testing.T) {
	c := testservers.NATS(t, 3)
	c.Stop()
	var two sync.WaitGroup
	for i := range 2 {
		two.Go(c.Node(i).Start) // one alone finds no leader
	}
	two.Wait()
	connect := func() *nats.Conn {
		nc, err := nats.Connect(c.Node(0).URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	asked := make(chan *nats.Msg, 1000)
	if _, err := connect().ChanSubscribe("$JS.API.STREAM.CREATE.LOG_0", asked); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc, opened := connect(), make(chan error, 1)
	go func() {
		_, err := Open(ctx, nc, Options{Replicas: 3})
		opened <- err
	}()
	for range 3 { // it asks again
		select {
		case <-asked:
		case err := <-opened:
			t.Fatalf("it gave up, or did without the third node: %v", err)
		}
	}
	c.Node(2).Start()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// What no waiting mends is told at once, and by its cause.
func TestSetUpDoesNotWaitForWhatLasts(t *testing.T) {
	for _, c := range []struct {
		replicas int
		may      string // publish to
		want     string
	}{
		{3, ">", "non-clustered mode"},
		{7, ">", "maximum replicas"},
		{1, "elsewhere", "STREAM.INFO.LOG_0"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := Open(ctx, limited(t, server.SubjectPermission{Allow: []string{c.may}}), Options{Replicas: c.replicas})
		if ctx.Err() != nil || err == nil || errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d replicas, publishing to %s: %v", c.replicas, c.may, err)
		}
		cancel()
	}
}

// limited connects to a server as a user who may not publish everything: what he may not
// is answered by nobody.
func limited(t *testing.T, publish server.SubjectPermission) *nats.Conn {
	user := &server.User{Username: "u", Password: "p", Permissions: &server.Permissions{Publish: &publish}}
	srv, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, Users: []*server.User{user},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.UserInfo("u", "p"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // says what he may not
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// What the server says decides whether it is worth to wait.
func TestWhatSetUpWaitsFor(t *testing.T) {
	noPeers := func(why string) error {
		return fmt.Errorf("x: %w", &jetstream.APIError{Code: 400, ErrorCode: errNoPeers, Description: "no suitable peers for placement" + why})
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{noPeers(", peer offline"), true},
		{noPeers(", miscellaneous issue"), true},
		{noPeers(""), false}, // more replicas than nodes
		{noPeers(", insufficient storage"), false},
		{nats.ErrTimeout, true},
		{jetstream.ErrStreamNotFound, false},
		{nil, false},
	} {
		if got := passes(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// An operator may have the server compress closed blocks of the log: it opens,
// and every event comes back.
func TestACompressedLogReadsTheSame(t *testing.T) {
	l := open(t, Options{})
	config := l.logConfig(0)
	config.Compression = jetstream.S2Compression
	if _, err := l.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	a, b := l.Writer(Key{"default", "a"}, Head{}), l.Writer(Key{"default", "b"}, Head{})
	defer a.Close()
	defer b.Close()
	text := event.CustomData{Name: "text", Value: event.Encode(strings.Repeat("what the model says ", 15<<10))}
	for range 60 { // 36 MB: blocks of the server have 8
		for _, w := range []*Writer{a, b} {
			if _, err := w.Append(event.New(event.Custom, text)); err != nil {
				t.Fatal(err)
			}
			appendAll(t, w, 1)
		}
	}
	again, err := Open(t.Context(), l.nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := again.js.Stream(t.Context(), "LOG_0")
	if err != nil || s.CachedInfo().Config.Compression != jetstream.S2Compression {
		t.Fatalf("the stream is not compressed any more: %v", err)
	}
	for _, k := range []Key{a.key, b.key} {
		for _, after := range []event.Seq{0, 1, 30, 119} {
			checkDense(t, seqs(t, again, k, after), after+1, 120)
		}
	}
}

// A server that takes no messages as large as frames is refused: a session would stand still
// at its first large event.
func TestAServerOfSmallMessagesIsRefused(t *testing.T) {
	srv, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, MaxPayload: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := Open(t.Context(), nc, Options{}); err == nil || !strings.Contains(err.Error(), "max_payload") {
		t.Error(err)
	}
}
