package eventlog

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// A backup is a stream as `nats stream backup` keeps it.
type backup struct {
	Config json.RawMessage     `json:"config"`
	State  json.RawMessage     `json:"state"`
	Error  *jetstream.APIError `json:"error,omitempty"`
	chunks [][]byte
}

// backUp has the server send a stream, and acknowledges each part.
func backUp(t *testing.T, nc *nats.Conn, stream string) (b backup) {
	t.Helper()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	msg, err := nc.Request("$JS.API.STREAM.SNAPSHOT."+stream, event.Encode(map[string]any{"deliver_subject": sub.Subject}), 10*time.Second)
	if err == nil {
		err = json.Unmarshal(msg.Data, &b)
	}
	if err != nil || b.Error != nil {
		t.Fatalf("back %s up: %v %v", stream, err, b.Error)
	}
	for {
		m, err := sub.NextMsg(20 * time.Second)
		if err != nil {
			t.Fatalf("back %s up: %v", stream, err)
		}
		if len(m.Data) == 0 {
			return b
		}
		b.chunks = append(b.chunks, m.Data)
		if m.Reply == "" { // the last one
			continue
		}
		if err := m.Respond(nil); err != nil {
			t.Fatal(err)
		}
	}
}

// putBack creates a stream from its backup.
func (b backup) putBack(t *testing.T, nc *nats.Conn, stream string) {
	t.Helper()
	var to struct {
		Error   *jetstream.APIError `json:"error"`
		Subject string              `json:"deliver_subject"`
	}
	ask := func(subject string, data []byte) {
		t.Helper()
		msg, err := nc.Request(subject, data, 30*time.Second)
		if err == nil && len(msg.Data) > 0 {
			err = json.Unmarshal(msg.Data, &to)
		}
		if err != nil || to.Error != nil {
			t.Fatalf("put %s back: %v %v", stream, err, to.Error)
		}
	}
	ask("$JS.API.STREAM.RESTORE."+stream, event.Encode(b))
	for _, c := range b.chunks {
		ask(to.Subject, c)
	}
	ask(to.Subject, nil)
}

// documentedStreams are those that docs/operations.md says to back up, in its order.
func documentedStreams(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testservers.Root(t), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "`nats stream backup` of")
	section, _, _ = strings.Cut(section, ": ")
	var list []string
	for _, name := range regexp.MustCompile("`[A-Z_]+(<p>)?`").FindAllString(section, -1) {
		list = append(list, strings.Replace(strings.Trim(name, "`"), "<p>", "0", 1))
	}
	if len(list) != 7 {
		t.Fatalf("docs/operations.md names %v", list)
	}
	return list
}

// Streams are backed up one after the other while runs are accepted and sessions go on, and
// put back into a server or a cluster that has lost them: what is there then goes on, and who
// asks for a run once more does not get a second one.
func TestStreamsArePutBackFromBackups(t *testing.T) {
	onClusters(t, func(t *testing.T, c *testservers.Cluster, opts Options) {
		opts.Partitions = 1
		l := dial(t, c.URL(), opts)
		purged, busy := Key{"default", "purged"}, Key{"default", "busy"}
		w := l.Writer(purged, Head{})
		defer w.Close()
		appendEach(t, w, 10)
		save(t, l, purged)
		appendEach(t, w, 3)
		purgeBefore(t, l, purged, 11)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		going := produce(ctx, l.Writer(busy, Head{}))
		defer going.w.Close()
		streams, kept := documentedStreams(t), map[string]backup{}
		for _, s := range streams {
			accept(t, l, s)
			kept[s] = backUp(t, l.nc, s)
		}
		accept(t, l, "lost")
		appendEach(t, w, 10)
		cancel()
		<-going.done
		for _, s := range streams {
			if err := l.js.DeleteStream(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range streams {
			kept[s].putBack(t, l.nc, s)
		}

		l = dial(t, c.URL(), opts)
		did, err := l.Restore(t.Context(), nil)
		if err != nil || did.Sessions != 2 {
			t.Fatal(did, err)
		}
		live := follow(t, l)
		for _, k := range []Key{busy, purged} {
			goesOn(t, l, live, k, did.Epoch)
		}
		for _, name := range append(streams, "lost") {
			isAcceptedOnce(t, l, name)
		}
	})
}

// accept does what an edge does with a run that begins a session, both of a name.
func accept(t *testing.T, l *Log, name string) {
	t.Helper()
	k := Key{"default", name}
	ref, _, err := l.Reserve(t.Context(), k.Tenant, name, RunRef{RunID: name, SessionID: name, CommandID: name, Created: event.At(time.Now())})
	if err == nil {
		err = l.Submit(t.Context(), k, event.Command{CommandID: name, Kind: event.Invoke, RunID: name})
	}
	if err == nil {
		err = l.Wake(t.Context(), k)
	}
	if err == nil {
		err = l.Accept(t.Context(), ref)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isAcceptedOnce asks for a run again, by its idempotency key. If its command was kept it has
// to be known, and a worker has to look for it; else it has to be accepted anew.
func isAcceptedOnce(t *testing.T, l *Log, name string) {
	t.Helper()
	waiting, err := l.Inbox(t.Context(), Key{"default", name})
	if err != nil {
		t.Fatal(err)
	}
	ref, _, err := l.Reserve(t.Context(), "default", name, RunRef{RunID: "another " + name, SessionID: name})
	there, ticketErr := l.Ticketed(t.Context(), Key{"default", name})
	if err != nil || ticketErr != nil {
		t.Fatal(err, ticketErr)
	}
	if kept := len(waiting) > 0; kept && (ref.RunID != name || !there) || !kept && ref.Accepted {
		t.Errorf("%s: its command is kept: %v, it has a ticket: %v; asked for again it is %+v", name, kept, there, ref)
	}
}

// goesOn appends to a session and follows it.
func goesOn(t *testing.T, l *Log, live *Live, k Key, epoch event.Epoch) {
	t.Helper()
	s, head, err := l.Load(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	begins := event.Seq(1)
	if k.Session == "purged" {
		begins = 11
	}
	checkDense(t, seqs(t, l, k, begins-1), begins, s.Seq)
	got := newCollector()
	watch, err := live.Watch(t.Context(), k, got, func(Frame) {})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	w := l.Writer(k, head)
	defer w.Close()
	appendEach(t, w, 5)
	checkDense(t, got.await(t, s.Seq+5), s.Seq+1, s.Seq+5)
	if end := w.Head(); end.Seq != s.Seq+5 || end.Epoch != epoch {
		t.Errorf("%s goes on from %d to %+v", k, s.Seq, end)
	}
}

// save stores a snapshot of a session as it is.
func save(t *testing.T, l *Log, k Key) {
	t.Helper()
	s, head, err := l.Load(t.Context(), k)
	if err == nil {
		err = l.SaveSnapshot(t.Context(), k, s.Encode(), head.Seq)
	}
	if err != nil {
		t.Fatal(err)
	}
}
