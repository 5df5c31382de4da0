package testservers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresOptions trade durability for speed: a test that needs a power cut needs another server.
var postgresOptions = []string{
	"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
	"-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "log_min_messages=warning",
}

// Postgres returns the URL of a fresh, empty database (UTF-8, collation C). The server is shared by all tests of
// the process; the database is dropped at the end of the test.
func Postgres(t testing.TB) string {
	t.Helper()
	Tool(t, "postgres")
	server, err := sharedPostgres()
	if err != nil {
		t.Fatal(err)
	}
	showSharedLog(t, server.Process)
	name, err := server.createDatabase()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.dropDatabase(t, name) })
	return server.url(name)
}

// A PostgresServer is one that a test has for itself, to stop and start it.
type PostgresServer struct {
	*Process
	port      int
	databases atomic.Int64
}

// StartPostgres starts a Postgres server that belongs to this test. Its data survives Stop, Kill and Start.
func StartPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	Tool(t, "postgres")
	server, err := newPostgres(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.finish)
	server.Start()
	return server
}

// Start starts the server, again after Stop or Kill, and waits until it serves. What a killed server leaves behind holds
// its memory for a moment, and as long as it does Postgres refuses to start.
func (s *PostgresServer) Start() {
	s.t.Helper()
	deadline := time.Now().Add(startTimeout)
	for {
		said := len(s.Log())
		err := s.start()
		if err == nil {
			return
		}
		if !strings.Contains(s.Log()[said:], "is still in use") || time.Now().After(deadline) {
			s.t.Fatal(err)
		}
	}
}

// URL returns the address of a fresh, empty database. The server has to be running.
func (s *PostgresServer) URL() string {
	s.t.Helper()
	name, err := s.createDatabase()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.url(name)
}

var sharedPostgres = sync.OnceValues(func() (*PostgresServer, error) {
	server, err := newPostgres(nil)
	if err != nil {
		return nil, err
	}
	return server, server.start()
})

func newPostgres(t testing.TB) (*PostgresServer, error) {
	bin, err := postgresDir()
	if err != nil {
		return nil, err
	}
	cred, err := postgresUser()
	if err != nil {
		return nil, err
	}
	data, err := initCluster(bin, cred)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	server := &PostgresServer{port: port}
	args := append([]string{"-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", ""}, postgresOptions...)
	server.Process, err = newProcess(t, spec{
		name: "postgres", path: filepath.Join(bin, "postgres"), args: args, env: baseEnv(nil), dir: data,
		cred:  cred,
		stop:  syscall.SIGINT, // "fast": breaks connections off, as a failover does
		ready: func() error { return server.exec("select 1") },
	})
	return server, err
}

// initCluster makes a data directory that the server's user owns.
func initCluster(bin string, cred *syscall.Credential) (string, error) {
	dir, err := newDir("postgres")
	if err != nil {
		return "", err
	}
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return "", err
		}
	}
	data := filepath.Join(dir, "data")
	cmd := exec.Command(filepath.Join(bin, "initdb"), "--no-sync", "--auth=trust", "--username=postgres",
		"--encoding=UTF8", "--locale=C", "--pgdata", data)
	cmd.Dir, cmd.Env = dir, baseEnv(nil)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return data, nil
}

func (s *PostgresServer) createDatabase() (string, error) {
	name := fmt.Sprintf("test_%d", s.databases.Add(1))
	return name, s.exec("create database " + name)
}

func (s *PostgresServer) dropDatabase(t testing.TB, name string) {
	if err := s.exec("drop database if exists " + name + " with (force)"); err != nil {
		t.Errorf("drop the test's database: %v", err)
	}
}

func (s *PostgresServer) exec(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(ctx, sql)
	return err
}

func (s *PostgresServer) url(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: loopback(s.port), Path: database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// postgresDir finds the newest server that the distribution's packages, or PATH, offer.
var postgresDir = sync.OnceValues(func() (string, error) {
	newest, dir := 0, ""
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	for _, path := range found {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if err == nil && version > newest {
			newest, dir = version, filepath.Dir(path)
		}
	}
	if dir != "" {
		return dir, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", errors.New("Postgres is not installed: run make test, or apt-get install postgresql")
})

// postgresUser returns whom to run the server as: it refuses to run as root.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("Postgres refuses to run as root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
