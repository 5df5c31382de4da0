package worker

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// The ticket of a run is gone when its worker dies: nobody will be handed it. The
// alarm that the worker has set brings another one.
func TestARunWhoseTicketIsLostGoesOn(t *testing.T) {
	const lease = time.Second
	b := newBench(t, lease)
	var started atomic.Int32
	first := b.worker(hangs(&started, nil))
	b.invoke("run_1", "hi")
	b.until("the model's answer", func(*event.Session) bool { return started.Load() > 0 })
	_, nc := b.open()
	b.loseTicket(nc)
	first.cut()
	lost := time.Now()
	b.worker(says("Here I am."))
	s, run := b.ended("run_1")
	if run.Status != event.Completed || s.Book.Claim.Attempt != 2 {
		t.Errorf("run is %+v, claim %+v", run, s.Book.Claim)
	}
	took := time.Since(lost)
	t.Logf("the run went on after %v", took.Round(time.Millisecond))
	if took > 4*lease+5*time.Second { // alarms are to the second; and this machine is shared
		t.Errorf("that took %v", took)
	}
}

// loseTicket takes the session's ticket away, once there is an alarm.
func (b *bench) loseTicket(nc *nats.Conn) {
	b.t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	timers, err := js.Stream(b.t.Context(), "TIMERS")
	if err != nil {
		b.t.Fatal(err)
	}
	b.until("the alarm", func(*event.Session) bool {
		info, err := timers.Info(b.t.Context())
		return err == nil && info.State.Msgs > 0
	})
	jobs, err := js.Stream(b.t.Context(), "JOBS")
	if err != nil {
		b.t.Fatal(err)
	}
	if err := jobs.Purge(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// A worker to which the log does not answer gives the ticket back, long before
// the lease has run out. It stops, so that it is not the one who gets it again.
func TestATurnBrokenOffReturnsItsTicket(t *testing.T) {
	const lease = time.Minute
	url := serverWithUsers(t)
	deaf, nc := openAs(t, url, "deaf", lease)
	l, _ := openAs(t, url, "whole", lease)
	store, err := artifacts.Open(t.Context(), "dir:"+t.TempDir(), artifacts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b := &bench{t: t, lease: lease, log: l, store: store}
	first := b.workerOn(deaf, nc, says("Never said."))
	b.invoke("run_1", "hi")
	b.until("the ticket to be taken", func(*event.Session) bool { return first.holds() })
	first.drain()
	_, other := openAs(t, url, "whole", lease)
	b.workerOn(l, other, says("Here I am."))
	if _, run := b.ended("run_1"); run.Status != event.Completed {
		t.Errorf("run is %+v", run)
	}
}

// holds reports whether the worker has a session.
func (w *Worker) holds() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held) > 0
}

// Whoever has taken all the time that there is for a release, because he stood still or
// nobody answered, still looks whether there is work without a ticket.
func TestWhoReleasesForTooLongLooksAgain(t *testing.T) {
	url := serverWithUsers(t)
	l, nc := openAs(t, url, "whole", time.Minute)
	seen := make(chan *nats.Msg, 1000)
	for _, subject := range []string{"live.>", "$JS.API.STREAM.MSG.GET.INBOX"} {
		if _, err := nc.ChanSubscribe(subject, seen); err != nil {
			t.Fatal(err)
		}
	}
	clinging, own := openAs(t, url, "clinging", time.Minute)
	store, err := artifacts.Open(t.Context(), "dir:"+t.TempDir(), artifacts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b := &bench{t: t, lease: time.Minute, log: l, store: store}
	w := b.newWorker(clinging, says("Hello."))
	w.patience = 500 * time.Millisecond
	b.run(w, own)
	b.invoke("run_1", "hi")
	released, timeout := false, time.After(30*time.Second)
	for {
		select {
		case m := <-seen:
			released = released || bytes.Contains(m.Data, []byte(`"session.released"`))
			if released && bytes.Contains(m.Data, []byte(`"inbox.default.ses_1.q"`)) { // asked once the other lane was answered
				return
			}
		case <-timeout:
			t.Fatalf("released: %v; and nobody looked again", released)
		}
	}
}

// serverWithUsers starts a server that does not let the user deaf read sessions, nor
// the user clinging release a ticket or hand it back.
func serverWithUsers(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{
			{Username: "whole", Password: "x"},
			{Username: "clinging", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.DELETE.JOBS", "$JS.ACK.JOBS.>"}}}},
			{Username: "deaf", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.GET.LOG_0"}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

func openAs(t *testing.T, url, user string, lease time.Duration) (*eventlog.Log, *nats.Conn) {
	t.Helper()
	nc, err := eventlog.Connect(url, user, nats.UserInfo(user, "x"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l, err := eventlog.Open(t.Context(), nc, eventlog.Options{Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return l, nc
}
