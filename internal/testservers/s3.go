package testservers

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// The credentials of every S3 server of this package.
const (
	S3AccessKey = "runlog-test"
	S3SecretKey = "runlog-test-secret"
)

// S3 returns the URL of a fresh, empty bucket, in the form RUNLOG_ARTIFACTS_URL takes:
//
//	s3://BUCKET?endpoint=http://127.0.0.1:PORT&access_key=…&secret_key=…&path_style=1
//
// The server is shared by all tests of the process.
func S3(t testing.TB) string {
	t.Helper()
	Tool(t, "versitygw")
	server, err := sharedS3()
	if err != nil {
		t.Fatal(err)
	}
	showSharedLog(t, server.Process)
	bucket, err := server.makeBucket()
	if err != nil {
		t.Fatal(err)
	}
	return server.url(bucket)
}

// An S3Server is one that a test has for itself, to stop and start it.
type S3Server struct {
	*Process
	addr    string
	buckets atomic.Int64
}

// StartS3 starts an S3 server that belongs to this test. Its data survives Stop, Kill and Start.
func StartS3(t testing.TB) *S3Server {
	t.Helper()
	Tool(t, "versitygw")
	server, err := newS3(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.finish)
	server.Start()
	return server
}

// URL returns the address of a fresh, empty bucket, as S3 does. The server has to be running.
func (s *S3Server) URL() string {
	s.t.Helper()
	bucket, err := s.makeBucket()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.url(bucket)
}

// Addr returns the host and port the server listens on, to put a Proxy before it.
func (s *S3Server) Addr() string { return s.addr }

var sharedS3 = sync.OnceValues(func() (*S3Server, error) {
	server, err := newS3(nil)
	if err != nil {
		return nil, err
	}
	return server, server.start()
})

func newS3(t testing.TB) (*S3Server, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	dir, err := newDir("s3")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, err
	}
	server := &S3Server{addr: loopback(port)}
	server.Process, err = newProcess(t, spec{
		name: "versitygw", path: filepath.Join(root, "bin", "versitygw"), dir: dir,
		args:  []string{"--port", server.addr, "--health", "/healthz", "--quiet", "posix", data},
		env:   baseEnv([]string{"ROOT_ACCESS_KEY_ID=" + S3AccessKey, "ROOT_SECRET_ACCESS_KEY=" + S3SecretKey}),
		ready: func() error { return answers("http://" + server.addr + "/healthz") },
	})
	return server, err
}

func (s *S3Server) makeBucket() (string, error) {
	client, err := minio.New(s.addr, &minio.Options{
		Creds:        credentials.NewStaticV4(S3AccessKey, S3SecretKey, ""),
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	bucket := fmt.Sprintf("test-%d", s.buckets.Add(1))
	if err := client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{}); err != nil {
		return "", fmt.Errorf("make bucket %s: %w", bucket, err)
	}
	return bucket, nil
}

func (s *S3Server) url(bucket string) string {
	q := url.Values{
		"endpoint": {"http://" + s.addr}, "access_key": {S3AccessKey}, "secret_key": {S3SecretKey}, "path_style": {"1"},
	}
	return "s3://" + bucket + "?" + q.Encode()
}
