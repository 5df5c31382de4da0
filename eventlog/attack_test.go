package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// dial opens a Log over a real connection.
func dial(t testing.TB, url string, opts Options) *Log {
	t.Helper()
	nc, err := Connect(url, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := Open(ctx, nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// onClusters runs a test on one server and on three with replicated streams.
func onClusters(t *testing.T, test func(t *testing.T, c *testservers.Cluster, opts Options)) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint("R", nodes), func(t *testing.T) {
			test(t, testservers.NATS(t, nodes), Options{Replicas: nodes, Partitions: 2, Lease: 2 * time.Second})
		})
	}
}

// A producer appends numbered events until it is fenced or told to stop, and
// remembers what was acknowledged.
type producer struct {
	w     *Writer
	acked event.Seq
	err   error
	done  chan struct{}
}

func produce(ctx context.Context, w *Writer) *producer {
	p := &producer{w: w, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for i := 0; ctx.Err() == nil; i++ {
			if _, p.err = w.Append(custom(i), custom(i), custom(i)); p.err != nil {
				return
			}
			if i%5 == 0 {
				if p.err = w.Sync(ctx); p.err != nil {
					return
				}
				p.acked = w.Head().Seq
			}
		}
	}()
	return p
}

// A writer is cut off in mid-flight, another one takes over, and then all that
// the first one had sent arrives.
func TestNothingOfAZombieGetsIn(t *testing.T) {
	onClusters(t, func(t *testing.T, c *testservers.Cluster, opts Options) {
		good := dial(t, c.URL(), opts)
		for i := range 4 {
			proxy := testservers.StartProxy(t, c.Node(0).Addr())
			bad := dial(t, "nats://"+proxy.Addr(), opts)
			k := Key{"default", fmt.Sprint("s", i)}
			zombie := bad.Writer(k, Head{})
			ctx, cancel := context.WithCancel(t.Context())
			p := produce(ctx, zombie)
			for zombie.Head().Seq < 50 {
				time.Sleep(time.Millisecond)
			}
			if i%2 == 0 {
				proxy.BlackholeReplies() // what it sends arrives, it does not hear of it
			} else {
				proxy.Blackhole()
			}
			head, err := good.Head(ctx, k)
			if err != nil {
				t.Fatal(err)
			}
			taken := takeOver(t, good, k, head)
			proxy.Heal()
			<-p.done
			cancel()
			if !errors.Is(p.err, ErrFenced) {
				t.Errorf("session %d: the zombie ended with %v", i, p.err)
			}
			if p.acked > taken {
				t.Errorf("session %d: event %d was acknowledged, but the new owner began after %d", i, p.acked, taken)
			}
			end, err := good.Head(t.Context(), k)
			if err != nil || end.Seq != taken+20 {
				t.Errorf("session %d: the log ends at %d, not at %d (%v)", i, end.Seq, taken+20, err)
			}
			checkDense(t, seqs(t, good, k, 0), 1, end.Seq)
		}
	})
}

// takeOver claims as a worker does, trying again while the old owner's frames
// still arrive, and appends 20 events. It returns where it began.
func takeOver(t *testing.T, l *Log, k Key, head Head) event.Seq {
	t.Helper()
	for {
		w := l.Writer(k, head)
		if _, err := w.Append(custom(-1)); err != nil {
			t.Fatal(err)
		}
		err := w.Sync(t.Context())
		if err == nil {
			defer w.Close()
			appendAll(t, w, 19)
			return head.Seq
		}
		w.Close()
		if !errors.Is(err, ErrFenced) {
			t.Fatal(err)
		}
		if head, err = l.Head(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
}

// The stream's leader is killed while sessions are written and watched.
func TestAppendsAndViewersOutliveTheLeader(t *testing.T) {
	c := testservers.NATS(t, 3)
	opts := Options{Replicas: 3}
	l := dial(t, c.URL(), opts)
	live := follow(t, dial(t, c.URL(), opts))
	const sessions = 5
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var producers [sessions]*producer
	var viewers [sessions]*collector
	for i := range sessions {
		k := Key{"default", fmt.Sprint("s", i)}
		viewers[i] = newCollector()
		w, err := live.Watch(ctx, k, viewers[i], fromNothing)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		producers[i] = produce(ctx, l.Writer(k, Head{}))
	}
	for range 2 {
		leader := c.Named(leaderOf(t, l))
		leader.Kill()
		mark := producers[0].w.Head().Seq
		for producers[0].w.Head().Seq < mark+200 { // it goes on
			time.Sleep(20 * time.Millisecond)
		}
		leader.Start()
	}
	cancel()
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() {
			<-producers[i].done
			if err := producers[i].w.Sync(context.Background()); err != nil { // a frame is still on its way
				t.Error(err)
			}
			producers[i].w.Close()
			k := Key{"default", fmt.Sprint("s", i)}
			end, err := l.Head(t.Context(), k)
			if err != nil || end.Seq < producers[i].acked {
				t.Errorf("session %d ends at %d, %d was acknowledged (%v)", i, end.Seq, producers[i].acked, err)
				return
			}
			checkDense(t, viewers[i].await(t, end.Seq), 1, end.Seq)
			checkDense(t, seqs(t, l, k, 0), 1, end.Seq)
		})
	}
	all.Wait()
}

func leaderOf(t *testing.T, l *Log) string {
	t.Helper()
	for {
		s, err := l.js.Stream(t.Context(), streamName(0))
		if err == nil && s.CachedInfo().Cluster != nil && s.CachedInfo().Cluster.Leader != "" {
			return s.CachedInfo().Cluster.Leader
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A session's next ticket is accepted as soon as the last one is released.
func TestANewTicketRightAfterTheLast(t *testing.T) {
	onClusters(t, func(t *testing.T, c *testservers.Cluster, opts Options) {
		l := dial(t, c.Node(c.Nodes()-1).URL(), opts)
		q, err := l.Tickets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k := Key{"default", "s"}
		refused := 0
		for range 100 {
			for l.Ticket(t.Context(), k) != nil {
				refused++
			}
			ticket, err := q.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := ticket.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if refused > 0 {
			t.Errorf("refused %d times", refused)
		}
	})
}

// Twenty parallel requests with one key, on two connections, are one run: each of
// them can take every step of its acceptance.
func TestOneRunOfManyReservations(t *testing.T) {
	onClusters(t, func(t *testing.T, c *testservers.Cluster, opts Options) {
		logs := []*Log{dial(t, c.Node(0).URL(), opts), dial(t, c.Node(c.Nodes()-1).URL(), opts)}
		var mu sync.Mutex
		runs := map[string]int{}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				ref, _, err := logs[i%2].Reserve(t.Context(), "t", "key", RunRef{RunID: fmt.Sprint("r", i), SessionID: "s", BodyHash: "h", Created: event.At(time.Now())})
				if err != nil {
					t.Error(err)
					return
				}
				k := Key{"t", ref.SessionID}
				cmd := event.Command{CommandID: ref.RunID + ".invoke", Kind: event.Invoke, RunID: ref.RunID}
				for _, err := range []error{logs[i%2].Submit(t.Context(), k, cmd), logs[i%2].Wake(t.Context(), k), logs[i%2].Accept(t.Context(), ref)} {
					if err != nil {
						t.Error(err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				runs[ref.RunID]++
			})
		}
		wg.Wait()
		if len(runs) != 1 {
			t.Errorf("the requests got %v", runs)
		}
		waiting, err := logs[0].Inbox(t.Context(), Key{"t", "s"})
		if err != nil || len(waiting) != 1 {
			t.Errorf("%d commands wait, %v", len(waiting), err)
		}
	})
}

// A process that froze while it asked for tickets swallows none for long.
func TestAFrozenProcessSwallowsNoTickets(t *testing.T) {
	c := testservers.NATS(t, 1)
	opts := Options{Lease: time.Second}
	proxy := testservers.StartProxy(t, c.Node(0).Addr())
	frozen, err := dial(t, "nats://"+proxy.Addr(), opts).Tickets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := dial(t, c.URL(), opts)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for range 30 {
		asking.Go(func() { _, _ = frozen.Next(ctx) })
	}
	for { // until the server has the requests
		cons, err := l.js.Consumer(ctx, jobsStream, consumer)
		if err != nil {
			t.Fatal(err)
		}
		if info := cons.CachedInfo(); info.NumWaiting == 30 {
			break
		}
	}
	proxy.Blackhole()
	if err := l.Ticket(ctx, Key{"t", "s"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	q, err := l.Tickets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Next(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 6*opts.Lease {
		t.Errorf("the ticket came after %v", took)
	}
}

// What was purged is gone, and said to be so; the fence stays.
func TestAPurgedBeginningIsGone(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	for range 10 { // frames of three events
		if _, err := w.Append(custom(1), custom(2), custom(3)); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := l.js.Stream(t.Context(), l.stream(k))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(l.subject(k)), jetstream.WithPurgeSequence(6)); err != nil {
		t.Fatal(err)
	}
	head := w.Head()
	for _, after := range []event.Seq{0, 3, 9} {
		_, err := first(l.Read(t.Context(), k, after, head))
		if !errors.Is(err, ErrGone) {
			t.Errorf("reading after %d gives %v", after, err)
		}
	}
	checkDense(t, seqs(t, l, k, 15), 16, 30)
	appendAll(t, w, 1)
}

func first(frames func(func(Frame, error) bool)) (f Frame, err error) {
	frames(func(got Frame, e error) bool {
		f, err = got, e
		return false
	})
	return f, err
}

// A server that does not do what was asked, or an installation with other
// partitions, is refused with what to do.
func TestAWrongInstallationIsRefused(t *testing.T) {
	e, err := StartEmbedded(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	nc, err := e.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := Open(t.Context(), nc, Options{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), nc, Options{Partitions: 4}); err == nil {
		t.Error("another number of partitions was accepted")
	} else if want := "RUNLOG_PARTITIONS=2"; !contains(err, want) {
		t.Errorf("%v does not say %s", err, want)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), inboxStream)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.MaxAge = time.Hour
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), nc, Options{Partitions: 2}); err == nil || !contains(err, "max age") {
		t.Errorf("a stream that forgets was accepted: %v", err)
	}
}

// What was sent and not heard of proves no ownership: it may be behind the claim of
// another, as what a process sends that stood still.
func TestOnlyACommitIsFresh(t *testing.T) {
	c := testservers.NATS(t, 1)
	proxy := testservers.StartProxy(t, c.Node(0).Addr())
	k := Key{"default", "s"}
	good, w := dial(t, c.URL(), Options{}), dial(t, "nats://"+proxy.Addr(), Options{}).Writer(k, Head{})
	defer w.Close()
	if w.Fresh(time.Hour) {
		t.Error("a writer that has written nothing is fresh")
	}
	if _, err := w.Append(custom(1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	committed := time.Now()
	if !w.Fresh(time.Hour) {
		t.Error("a commit is not fresh")
	}
	proxy.BlackholeReplies()
	if _, err := w.Append(custom(2)); err != nil {
		t.Fatal(err)
	}
	for { // it was sent
		if head, err := good.Head(t.Context(), k); err != nil || head.Seq > 1 {
			break
		}
	}
	if w.Fresh(time.Since(committed)) {
		t.Error("fresh without a commit")
	}
}
