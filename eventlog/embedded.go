package eventlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"
)

// Embedded is a nats-server inside this process, with its streams in a
// directory that no other process may use meanwhile.
type Embedded struct {
	srv  *server.Server
	lock *os.File
}

// ErrLocked: another process uses the directory.
var ErrLocked = errors.New("data directory is in use by another process")

// StartEmbedded starts a server on dir. An acknowledged append is in the
// operating system's page cache, so it survives the death of this process; with
// syncAlways it is on the disk, so it survives a power cut.
func StartEmbedded(dir string, syncAlways bool) (*Embedded, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start embedded server: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "embedded", DontListen: true, JetStream: true, StoreDir: dir,
		SyncAlways: syncAlways, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start embedded server: %w", err), lock.Close())
	}
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		srv.Shutdown()
		return nil, errors.Join(errors.New("start embedded server: not ready after 30 s"), lock.Close())
	}
	return &Embedded{srv: srv, lock: lock}, nil
}

// lockFile holds path for the life of the process. JetStream has no lock of its
// own: two servers on one directory destroy it without an error.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w: stop it or choose another --data", path, ErrLocked)
	}
	return f, nil
}

// Connect returns a connection to the server inside the process.
func (e *Embedded) Connect(opts ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect("", append(opts, nats.InProcessServer(e.srv))...)
	if err != nil {
		return nil, fmt.Errorf("connect to embedded server: %w", err)
	}
	return nc, nil
}

// Close stops the server and unlocks its directory.
func (e *Embedded) Close() error {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	return e.lock.Close()
}

// Connect dials a NATS cluster as runlog needs it: reconnecting for ever, with
// a bounded buffer of what is published meanwhile.
func Connect(url, name string, opts ...nats.Option) (*nats.Conn, error) {
	base := []nats.Option{
		nats.Name("runlog " + name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ReconnectBufSize(-1), // a publish while cut off fails at once; writers know what to do
		nats.CustomInboxPrefix("_INBOX_runlog"),
	}
	nc, err := nats.Connect(url, append(base, opts...)...)
	if err != nil {
		return nil, unavailable(fmt.Errorf("connect to NATS at %s: %w", url, err))
	}
	return nc, nil
}

// Attentive has a connection notice within two thirds of a lease that it hears
// nothing any more, while what it says may still arrive: its beats and tickets
// would keep everybody else away from sessions with which it cannot go on.
func Attentive(lease time.Duration) nats.Option {
	if lease == 0 {
		lease = defaultLease
	}
	return nats.PingInterval(lease / 5) // three of them, with the two pings outstanding
}
