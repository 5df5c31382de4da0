package audit_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/audit"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A bench is an installation whose log a test can write as it likes.
type bench struct {
	t   *testing.T
	nc  *nats.Conn
	log *eventlog.Log
}

func newBench(t *testing.T, partitions int) *bench {
	t.Helper()
	srv, err := eventlog.StartEmbedded(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l, err := eventlog.Open(t.Context(), nc, eventlog.Options{Lease: 5 * time.Second, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, nc, l}
}

var ses1 = eventlog.Key{Tenant: "acme", Session: "ses_1"}

// write appends events as one worker after the other does.
func (b *bench) write(k eventlog.Key, events ...event.Event) {
	b.t.Helper()
	head, err := b.log.Head(b.t.Context(), k)
	if err != nil {
		b.t.Fatal(err)
	}
	w := b.log.Writer(k, head)
	append := func(events ...event.Event) {
		_, err := w.Append(events...)
		if err == nil {
			err = w.Sync(b.t.Context())
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	append(events[:2]...) // session.created and its claim go together
	for _, e := range events[2:] {
		if e.Type == event.SessionClaimed {
			w.Close()
			w = b.log.Writer(k, w.Head())
		}
		append(e)
	}
	w.Close()
}

// put publishes a message as it is.
func (b *bench) put(subject string, data []byte, headers ...string) {
	b.t.Helper()
	m := nats.NewMsg(subject)
	m.Data = data
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	if _, err := b.nc.RequestMsg(m, 5*time.Second); err != nil {
		b.t.Fatal(err)
	}
}

// all checks the installation as `runlog fsck` does.
func (b *bench) all(tenant string, grace time.Duration) ([]audit.Finding, audit.Report) {
	b.t.Helper()
	l, err := eventlog.Inspect(b.t.Context(), b.nc, eventlog.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	var list []audit.Finding
	r, err := audit.New(l, audit.Options{Grace: grace}).All(b.t.Context(), tenant, func(f audit.Finding) { list = append(list, f) })
	if err != nil {
		b.t.Fatal(err)
	}
	if int(r.Findings) != len(list) {
		b.t.Errorf("%d findings are counted, %d told", r.Findings, len(list))
	}
	return list, r
}

// want holds that one finding, and no other, is of a rule and a session.
func (b *bench) want(list []audit.Finding, rule audit.Rule, k eventlog.Key) {
	b.t.Helper()
	if len(list) != 1 || list[0].Rule != rule || list[0].Tenant != k.Tenant || list[0].Session != k.Session {
		b.t.Errorf("found %v, want one %s of %s", list, rule, k)
	}
}

// now makes grace so short that everything is left behind.
const now = time.Nanosecond

func TestASoundInstallationHasNoFindings(t *testing.T) {
	b := newBench(t, 3)
	for _, id := range []string{"ses_1", "ses_2", "odd id.*", "ses_4"} {
		k := eventlog.Key{Tenant: "acme", Session: id}
		b.write(k, audit.Simple()...)
		s, head, err := b.log.Load(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.log.SaveSnapshot(t.Context(), k, s.Encode(), head.Seq); err != nil {
			t.Fatal(err)
		}
	}
	b.write(eventlog.Key{Tenant: "other", Session: "ses_1"}, audit.Tools()...)
	list, r := b.all("", now)
	if len(list) > 0 || r.Sessions != 5 || r.Runs != 5 || r.Events != int64(4*len(audit.Simple())+len(audit.Tools())) || r.Bytes == 0 {
		t.Errorf("%+v: %v", r, list)
	}
	if list, r = b.all("other", now); len(list) > 0 || r.Sessions != 1 {
		t.Errorf("one tenant: %+v: %v", r, list)
	}
	list, r, err := audit.New(b.log, audit.Options{Grace: now}).Session(t.Context(), ses1)
	if err != nil || len(list) > 0 || r.Events != int64(len(audit.Simple())) {
		t.Errorf("one session: %+v: %v, %v", r, list, err)
	}
}

func TestStoredFramesAreReadWhateverIsWrongWithThem(t *testing.T) {
	b := newBench(t, 1)
	b.write(ses1, audit.Simple()...)
	e := event.New(event.Custom, event.CustomData{Name: "n"})
	e.Seq, e.SessionID, e.ID, e.Time = 99, "ses_1", "ses_1-99", event.At(time.Now())
	b.put("log.0.acme.ses_1", e.AppendLine(nil), "Runlog-Seq", "nonsense")
	b.put("log.0.acme.ses_1", []byte("no json\n"), "Runlog-Seq", "100-100", "Runlog-Frame", "w_9-1")
	list, _ := b.all("", now)
	for _, rule := range []audit.Rule{audit.FrameHeader, audit.FrameForm, audit.FrameWriter, audit.FrameChain, audit.SeqDense, audit.ClaimOwner} {
		if !slices.ContainsFunc(list, func(f audit.Finding) bool { return f.Rule == rule }) {
			t.Errorf("no %s in %v", rule, list)
		}
	}
}

func TestAHeadThatCannotBeReadIsAFinding(t *testing.T) {
	b := newBench(t, 1)
	b.write(ses1, audit.Simple()...)
	b.put("log.0.acme.ses_1", []byte("{}\n"))
	list, _ := b.all("", now)
	b.want(list, audit.Unreadable, ses1)
}

func TestASessionInTheWrongPartition(t *testing.T) {
	b := newBench(t, 4)
	wrong := (b.log.Partition(ses1) + 1) % 4
	b.put("log."+strconv.Itoa(wrong)+".acme.ses_1", []byte("{}\n"), "Runlog-Seq", "1-1")
	list, _ := b.all("", now)
	b.want(list, audit.FramePlace, ses1)
}

func TestASnapshotThatLies(t *testing.T) {
	b := newBench(t, 1)
	b.write(ses1, audit.Simple()...)
	s, head, err := b.log.Load(t.Context(), ses1)
	if err != nil {
		t.Fatal(err)
	}
	s.Messages[0].Parts[0].Text = "goodbye"
	if err := b.log.SaveSnapshot(t.Context(), ses1, s.Encode(), head.Seq); err != nil {
		t.Fatal(err)
	}
	list, _ := b.all("", now)
	b.want(list, audit.SnapshotFold, ses1)
	b.put("$KV.SNAPSHOTS.acme.ses_1", []byte("nonsense"))
	list, _ = b.all("", now)
	b.want(list, audit.Unreadable, ses1)
}

func (b *bench) submit(id string, kind event.Kind) {
	b.t.Helper()
	cmd := event.Command{CommandID: id, Kind: kind, SessionID: ses1.Session, RunID: "run_" + id, Time: event.At(time.Now())}
	if err := b.log.Submit(b.t.Context(), ses1, cmd); err != nil {
		b.t.Fatal(err)
	}
}

func TestACommandThatIsAnsweredAndStillThere(t *testing.T) {
	b := newBench(t, 1)
	b.write(ses1, audit.Simple()...)
	b.submit("cmd_1", event.Invoke) // the one that the log has answered
	list, _ := b.all("", now)
	b.want(list, audit.InboxAnswered, ses1)
	if list, _ := b.all("", time.Hour); len(list) > 0 {
		t.Errorf("it has just come: %v", list)
	}
	if err := b.log.Ticket(t.Context(), ses1); err != nil {
		t.Fatal(err)
	}
	if list, _ := b.all("", now); len(list) > 0 {
		t.Errorf("somebody is about to look: %v", list)
	}
}

func TestWorkWithoutATicket(t *testing.T) {
	b := newBench(t, 1)
	b.submit("cmd_7", event.Invoke) // in a session that has no log yet
	list, _ := b.all("", now)
	b.want(list, audit.TicketMissing, ses1)
	if err := b.log.Ticket(t.Context(), ses1); err != nil {
		t.Fatal(err)
	}
	if list, _ := b.all("", now); len(list) > 0 {
		t.Errorf("it has a ticket: %v", list)
	}
}

func TestARunInTheMiddleWithoutATicket(t *testing.T) {
	b := newBench(t, 1)
	b.write(ses1, audit.Simple()[:12]...)
	list, _ := b.all("", now)
	b.want(list, audit.TicketMissing, ses1)
	if list, _ := b.all("", time.Hour); len(list) > 0 {
		t.Errorf("it was written a moment ago: %v", list)
	}
}

func TestAWaitThatIsOver(t *testing.T) {
	b := newBench(t, 1)
	parked := slices.IndexFunc(audit.Waits(), func(e event.Event) bool { return e.Type == event.SessionReleased })
	b.write(ses1, audit.Waits()[:parked+1]...) // until a time that is long past
	list, _ := b.all("", now)
	b.want(list, audit.WaitOverdue, ses1)
}

func TestAWaitThatNothingEnds(t *testing.T) {
	b := newBench(t, 1)
	parked := slices.IndexFunc(audit.Waits(), func(e event.Event) bool { return e.Type == event.SessionReleased })
	events := audit.Waits()[:parked+1]
	until := time.Now().Add(time.Hour)
	for i, e := range events {
		events[i].Data = []byte(strings.ReplaceAll(string(e.Data), "2020-", "2999-"))
	}
	b.write(ses1, events...)
	list, _ := b.all("", now)
	b.want(list, audit.WaitTimed, ses1)
	if list, _ := b.all("", time.Hour); len(list) > 0 {
		t.Errorf("it was parked a moment ago: %v", list)
	}
	if err := b.log.SetTimer(t.Context(), ses1, event.Command{CommandID: "expire", Kind: event.Expire, RunID: "r"}, until); err != nil {
		t.Fatal(err)
	}
	if list, _ := b.all("", now); len(list) > 0 {
		t.Errorf("it has a timer: %v", list)
	}
}

func TestAcceptedRunsAreThere(t *testing.T) {
	b := newBench(t, 1)
	b.write(ses1, audit.Simple()...)
	accept := func(runID string, after event.Seq) {
		t.Helper()
		ref, _, err := b.log.Reserve(t.Context(), "acme", "", eventlog.RunRef{RunID: runID, SessionID: "ses_1", After: after, Created: event.At(time.Now())})
		if err == nil {
			err = b.log.Accept(t.Context(), ref)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	accept("r", 0)
	b.submit("waits", event.Invoke)
	accept("run_waits", 17)
	if err := b.log.Ticket(t.Context(), ses1); err != nil {
		t.Fatal(err)
	}
	if list, _ := b.all("", now); len(list) > 0 {
		t.Fatalf("both are there: %v", list)
	}
	accept("run_lost", 17)
	list, _ := b.all("acme", now)
	b.want(list, audit.RunLost, ses1)
	if list, _ := b.all("other", now); len(list) > 0 {
		t.Errorf("it is not the other tenant's: %v", list)
	}
}

func TestARunThatBeginsBeforeItsClientsLook(t *testing.T) {
	b := newBench(t, 1)
	b.write(ses1, audit.Simple()...)
	ref, _, err := b.log.Reserve(t.Context(), "acme", "", eventlog.RunRef{RunID: "r", SessionID: "ses_1", After: 12, Created: event.At(time.Now())})
	if err == nil {
		err = b.log.Accept(t.Context(), ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	list, _ := b.all("", now)
	b.want(list, audit.RunLost, ses1)
}

// A check of sessions that are being written finds nothing, whenever it looks.
func TestALiveInstallationIsSound(t *testing.T) {
	b := newBench(t, 1)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for n := range 25 {
			b.write(eventlog.Key{Tenant: "acme", Session: "ses_" + strconv.Itoa(n)}, audit.Tools()...)
		}
	}()
	for looks := 0; ; looks++ {
		if list, _ := b.all("", time.Hour); len(list) > 0 {
			t.Fatalf("while it is written: %v", list)
		}
		select {
		case <-wrote:
			if looks == 0 {
				t.Error("all was written before the first look")
			}
			return
		default:
		}
	}
}

func TestInspectCreatesNothing(t *testing.T) {
	srv, err := eventlog.StartEmbedded(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	nc, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := eventlog.Inspect(t.Context(), nc, eventlog.Options{}); err == nil {
		t.Error("an empty server is taken for an installation")
	}
	if _, err := eventlog.Open(t.Context(), nc, eventlog.Options{Partitions: 3, Lease: 7 * time.Second}); err != nil {
		t.Fatal(err)
	}
	l, err := eventlog.Inspect(t.Context(), nc, eventlog.Options{})
	if err != nil || l.Partitions() != 3 || l.Lease() != 7*time.Second {
		t.Errorf("inspected: %d partitions, lease %s, %v", l.Partitions(), l.Lease(), err)
	}
}
