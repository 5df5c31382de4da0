package eventlog

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// A server without room for more refuses commands and says why, loses none that it took, and takes more when there is
// room again.
func TestAFullLogSaysSo(t *testing.T) {
	srv, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 8 << 20, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server is not ready")
	}
	nc, err := (&Embedded{srv: srv}).Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	l, err := Open(t.Context(), nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := Key{Tenant: "default", Session: "s"}
	submit := func(id string) error {
		return l.Submit(t.Context(), k, event.Command{CommandID: id, Kind: event.Invoke, RunID: id})
	}
	if err := submit("before"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILLER", Subjects: []string{"filler"}}); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = l.js.Publish(t.Context(), "filler", make([]byte, 512<<10))
	}
	for err = nil; err == nil; {
		_, err = l.js.Publish(t.Context(), "filler", nil)
	}
	if err := submit("full"); !errors.Is(err, ErrFull) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if err := l.js.DeleteStream(t.Context(), "FILLER"); err != nil {
		t.Fatal(err)
	}
	if err := submit("after"); err != nil {
		t.Fatal(err)
	}
	all, err := l.Inbox(t.Context(), k)
	if err != nil || len(all) != 2 || all[0].CommandID != "before" || all[1].CommandID != "after" {
		t.Errorf("%v %v", all, err)
	}
}
