package testservers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestPostgresDatabasesAreApart(t *testing.T) {
	a, b := Postgres(t), Postgres(t)
	if a == b {
		t.Fatalf("two tests got the same database %s", a)
	}
	query(t, a, "create table only_here (n int)")
	if got := query(t, b, "select coalesce(to_regclass('only_here')::text, 'absent')"); got != "absent" {
		t.Errorf("the other database has the table: %s", got)
	}
	if got := query(t, a, "show server_encoding"); got != "UTF8" {
		t.Errorf("encoding %s, want UTF8", got)
	}
}

func TestPostgresComesBackWithItsData(t *testing.T) {
	server := StartPostgres(t)
	db := server.URL()
	query(t, db, "create table kept as select 42 as n")
	server.Stop()
	if conn, err := pgx.Connect(t.Context(), db); err == nil {
		conn.Close(t.Context())
		t.Fatal("a stopped server took a connection")
	}
	server.Start()
	if got := query(t, db, "select n::text from kept"); got != "42" {
		t.Errorf("got %q, want 42", got)
	}
}

// query runs one statement and returns the first column of its first row as text, if there is one.
func query(t *testing.T, db, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got string
	for rows.Next() {
		if err := rows.Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// The backends of a killed server outlive it for a moment.
func TestPostgresStartsRightAfterItWasKilled(t *testing.T) {
	server := StartPostgres(t)
	url := server.URL()
	for range 5 {
		for range 10 { // backends
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
		}
		server.Kill()
		server.Start()
	}
}

func TestS3KeepsObjectsThroughARestart(t *testing.T) {
	server := StartS3(t)
	client, bucket := s3Client(t, server.URL())
	put(t, client, bucket, "k", "kept")
	server.Kill()
	server.Start()
	if got := get(t, client, bucket, "k"); got != "kept" {
		t.Errorf("got %q, want kept", got)
	}
}

func TestS3BucketsAreApart(t *testing.T) {
	a, b := S3(t), S3(t)
	client, bucket := s3Client(t, a)
	put(t, client, bucket, "k", "v")
	other, otherBucket := s3Client(t, b)
	if _, err := other.StatObject(t.Context(), otherBucket, "k", minio.StatObjectOptions{}); err == nil {
		t.Errorf("%s and %s share their objects", a, b)
	}
}

// s3Client reads a URL as its users do.
func s3Client(t *testing.T, raw string) (client *minio.Client, bucket string) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	client, err = minio.New(strings.TrimPrefix(q.Get("endpoint"), "http://"), &minio.Options{
		Creds:        credentials.NewStaticV4(q.Get("access_key"), q.Get("secret_key"), ""),
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client, u.Host
}

func put(t *testing.T, client *minio.Client, bucket, key, body string) {
	t.Helper()
	r := strings.NewReader(body)
	if _, err := client.PutObject(t.Context(), bucket, key, r, r.Size(), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, client *minio.Client, bucket, key string) string {
	t.Helper()
	obj, err := client.GetObject(t.Context(), bucket, key, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestNATSSingleNodeKeepsMessagesThroughAKill(t *testing.T) {
	c := NATS(t, 1)
	js := jetStream(t, c.URL())
	stream := newStream(t, js, 1)
	publish(t, js)
	c.Node(0).Kill()
	c.Node(0).Start()
	js = jetStream(t, c.URL())
	stream, err := js.Stream(t.Context(), stream.CachedInfo().Config.Name)
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got != 1 {
		t.Errorf("%d messages after a kill, want 1", got)
	}
}

func TestNATSClusterLivesWithoutItsLeader(t *testing.T) {
	c := NATS(t, 3)
	js := jetStream(t, c.URL())
	stream := newStream(t, js, 3)
	publish(t, js)
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Config.Replicas != 3 || len(info.Cluster.Replicas) != 2 {
		t.Fatalf("stream is not replicated three times: %+v", info.Cluster)
	}
	leader := c.Named(info.Cluster.Leader)
	leader.Kill()
	publish(t, js)
	leader.Start()
	publish(t, js)
}

func TestNATSPausedNodeAnswersNothing(t *testing.T) {
	c := NATS(t, 1)
	nc, err := nats.Connect(c.URL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c.Node(0).Pause()
	if err := nc.FlushTimeout(100 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("a paused server answered: %v", err)
	}
	c.Node(0).Resume()
	if err := nc.FlushTimeout(10 * time.Second); err != nil {
		t.Errorf("a resumed server is silent: %v", err)
	}
}

func jetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func newStream(t *testing.T, js jetstream.JetStream, replicas int) jetstream.Stream {
	t.Helper()
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Replicas: replicas,
	})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// publish tries until the stream has taken a message: a cluster that lost its leader is silent for some seconds.
func publish(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = js.Publish(ctx, "s.x", []byte("m"))
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatal(err)
}

func TestProxyFaults(t *testing.T) {
	p := StartProxy(t, echo(t))
	if got, err := ask(p, 5*time.Second); err != nil || got != "ping" {
		t.Fatalf("through a healthy proxy: %q, %v", got, err)
	}
	p.Blackhole()
	if got, err := ask(p, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("through a blackhole: %q, %v", got, err)
	}
	p.Heal()
	p.Reset()
	if got, err := ask(p, 5*time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("through a reset: %q, %v", got, err)
	}
	p.Heal()
	p.Latency(80 * time.Millisecond)
	began := time.Now()
	if _, err := ask(p, 5*time.Second); err != nil || time.Since(began) < 160*time.Millisecond {
		t.Errorf("with 80 ms each way it took %v: %v", time.Since(began), err)
	}
	p.Heal()
	p.Disable()
	if got, err := ask(p, 5*time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("through a disabled proxy: %q, %v", got, err)
	}
	p.Enable()
	if got, err := ask(p, 5*time.Second); err != nil || got != "ping" {
		t.Errorf("through a proxy enabled again: %q, %v", got, err)
	}
}

// echo serves connections by returning what comes.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

func ask(p *Proxy, patience time.Duration) (string, error) {
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "ping"); err != nil {
		return "", err
	}
	buf := make([]byte, 4)
	_, err = io.ReadFull(conn, buf)
	return string(buf), err
}

func TestNginxServes(t *testing.T) {
	addr := FreeAddr(t)
	conf := fmt.Sprintf("events {} http { access_log off; server { listen %s; location / { return 200 'hello'; } } }", addr)
	CheckNginx(t, conf)
	StartNginx(t, conf).WaitReady("http://" + addr)
	resp, err := http.Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "hello" {
		t.Errorf("got %q", body)
	}
}

func TestPortsAreNotGivenTwice(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port := FreePort(t)
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		seen[port] = true
	}
}

func TestProcessEndsWithItsChildren(t *testing.T) {
	var child int
	t.Run("inside", func(t *testing.T) {
		p := StartProcess(t, "/bin/sh", []string{"-c", "sleep 600 & echo child $!; wait"}, nil)
		fields := strings.Fields(p.WaitLog("child "))
		child, _ = strconv.Atoi(fields[1])
	})
	awaitGone(t, child)
}

func TestProcessStopIsPoliteAndKillIsNot(t *testing.T) {
	script := []string{"-c", `trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done`}
	p := StartProcess(t, "/bin/sh", script, nil)
	p.WaitLog("up")
	p.Pause()
	p.Stop() // also wakes it
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("stopped with %v, want exit code 3", err)
	}
	p.Start()
	p.Kill()
	if err := p.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("killed with %v", err)
	}
	if n := strings.Count(p.Log(), "bye"); n != 1 {
		t.Errorf("%d farewells, want one of the stop and none of the kill:\n%s", n, p.Log())
	}
}

func TestProcessGetsNoEnvironmentButItsOwn(t *testing.T) {
	t.Setenv("RUNLOG_LISTEN", "0.0.0.0:1")
	p := StartProcess(t, "/usr/bin/env", nil, []string{"RUNLOG_LEASE=2s"})
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if log := p.Log(); strings.Contains(log, "RUNLOG_LISTEN") || !strings.Contains(log, "RUNLOG_LEASE=2s") {
		t.Errorf("environment of the process:\n%s", log)
	}
}

// TestServersDieWithAKilledTestProcess runs this test binary again, kills it while it holds servers, and looks
// whether they and their directories are gone.
func TestServersDieWithAKilledTestProcess(t *testing.T) {
	if report := os.Getenv("RUNLOG_TEST_REPORT"); report != "" {
		holdServers(t, report)
	}
	report := filepath.Join(t.TempDir(), "report")
	var out bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersDieWithAKilledTestProcess$")
	cmd.Env = append(os.Environ(), "RUNLOG_TEST_REPORT="+report)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir, pids := awaitReport(t, report, &out)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range pids {
		awaitGone(t, pid)
	}
	await(t, func() error {
		if _, err := os.Stat(dir); err == nil {
			return fmt.Errorf("%s is still there", dir)
		}
		return nil
	})
}

func holdServers(t *testing.T, report string) {
	pg, s3, nats := StartPostgres(t), StartS3(t), NATS(t, 1)
	dir, err := processDir()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintln(dir, pg.PID(), s3.PID(), nats.Node(0).PID())
	if err := os.WriteFile(report+".tmp", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(report+".tmp", report); err != nil {
		t.Fatal(err)
	}
	select {} // until killed
}

func awaitReport(t *testing.T, report string, out *bytes.Buffer) (dir string, pids []int) {
	t.Helper()
	var fields []string
	await(t, func() error {
		data, err := os.ReadFile(report)
		fields = strings.Fields(string(data))
		return err
	})
	for _, f := range fields[1:] {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("report %q: %v\n%s", fields, err, out)
		}
		pids = append(pids, pid)
	}
	return fields[0], pids
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	await(t, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return nil // a zombie is gone but for its parent's notice
		}
		return fmt.Errorf("pid %d is still there: %s", pid, stat)
	})
}

func await(t *testing.T, ready func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = ready(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
