package artifacts_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/artifacts/artifactstest"
	"github.com/runlog-dev/runlog/internal/testservers"
)

var putOptions = minio.PutObjectOptions{ContentType: "text/html"}

func TestOpenRefuses(t *testing.T) {
	for _, name := range []string{"RUNLOG_S3_ACCESS_KEY", "RUNLOG_S3_SECRET_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	const keys = "&access_key=AKIAEXAMPLE&secret_key=hush-hush"
	for url, want := range map[string]string{
		"": "unknown scheme", "file:/tmp/x": "use dir:PATH or s3://", "/tmp/x": "unknown scheme", "dir:": "needs a path", "dir:/dev/null/x": "not a directory",
		"s3://?endpoint=http://127.0.0.1:1" + keys:                          "no bucket",
		"s3://bkt?endpoint=127.0.0.1:1" + keys:                              "endpoint must look like",
		"s3://bkt?endpoint=ftp://127.0.0.1:1" + keys:                        "endpoint must look like",
		"s3://bkt?endpoint=http://127.0.0.1:1/x" + keys:                     "endpoint must look like",
		"s3://bkt?endpoint=http://user:hush-hush@127.0.0.1:1" + keys:        "endpoint must look like",
		"s3://bkt?endpiont=http://127.0.0.1:1" + keys:                       `unknown parameter "endpiont"`,
		"s3://bkt?path_style=yes" + keys:                                    "path_style must be 0 or 1",
		"s3://bkt?region=a&region=b" + keys:                                 "region is given twice",
		"s3://bkt/x/../y?endpoint=http://127.0.0.1:1" + keys:                "prefix element",
		"s3://bkt?endpoint=http://127.0.0.1:1":                              "no credentials",
		"s3://bkt?endpoint=http://127.0.0.1:1&secret_key=hush-hush":         "one of the two is missing",
		"s3://bkt?endpoint=http://127.0.0.1:1&secret_key=hush-hush%zz":      "not a query",
		"s3://bkt:hush-hush?endpoint=http://127.0.0.1:1" + keys:             "not a URL",
		"s3://Not_A_Bucket?path_style=1&endpoint=http://127.0.0.1:1" + keys: "ucket name",
	} {
		s, err := artifacts.Open(t.Context(), url, artifacts.Options{})
		switch {
		case err == nil:
			s.Close()
			t.Errorf("%q was opened", url)
		case !strings.Contains(err.Error(), want):
			t.Errorf("%q: got %q, want %q in it", url, err, want)
		case strings.Contains(err.Error(), "hush"):
			t.Errorf("%q: the error shows the secret: %v", url, err)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, o := range []artifacts.Options{{MaxBytes: -1}, {PartBytes: 1 << 20}, {PartBytes: 2 << 30}, {MaxBytes: 1 << 50}} {
		if s, err := artifacts.Open(t.Context(), freshDir(t), o); err == nil {
			s.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestS3CredentialsFromEnvironment(t *testing.T) {
	u, err := url.Parse(testservers.S3(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Del("access_key")
	q.Del("secret_key")
	u.RawQuery = q.Encode()
	t.Setenv("AWS_ACCESS_KEY_ID", testservers.S3AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testservers.S3SecretKey)
	open(t, u.String())
	t.Setenv("RUNLOG_S3_ACCESS_KEY", testservers.S3AccessKey)
	t.Setenv("RUNLOG_S3_SECRET_KEY", "wrong") // it goes first
	if s, err := artifacts.Open(t.Context(), u.String(), artifacts.Options{}); err == nil {
		s.Close()
		t.Error("a wrong secret was accepted")
	} else if errors.Is(err, artifacts.ErrUnavailable) || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("wrong secret: got %v, want an error about credentials that is not ErrUnavailable", err)
	}
}

func TestS3MakesItsBucket(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(testservers.S3(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = "made-by-" + u.Host
	errs := make([]error, 6)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			s, err := artifacts.Open(t.Context(), u.String(), artifacts.Options{})
			if errs[i] = err; err == nil {
				s.Close()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Errorf("six nodes at once: %v", err)
	}
	mustStore(t, open(t, u.String()), keyA, []byte("x"))
}

// TestS3WithoutConditionalWrites: a server that would overwrite is refused.
// Here it is one that forgets what is there whenever it is to check for it.
func TestS3WithoutConditionalWrites(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{http.MethodPut: "on PUT", http.MethodPost: "on CompleteMultipartUpload"} {
		g := newGate(t)
		g.set(func(r *http.Request) fault {
			bucket, name, _ := strings.Cut(r.URL.Path[1:], "/")
			if r.Method == method && r.Header.Get("If-None-Match") == "*" {
				if err := g.admin.RemoveObject(t.Context(), bucket, name, minio.RemoveObjectOptions{}); err != nil {
					t.Errorf("remove %s: %v", name, err)
				}
			}
			return pass
		})
		s, err := artifacts.Open(t.Context(), g.url, artifacts.Options{})
		if err == nil {
			s.Close()
			t.Errorf("a server that ignores If-None-Match %s was accepted", want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		g.set(nil)
		if left := g.objects(t); len(left) > 0 {
			t.Errorf("left in the bucket: %v", left)
		}
	}
}

func TestS3PresignGet(t *testing.T) {
	t.Parallel()
	s := open(t, testservers.S3(t))
	w, err := s.Create(t.Context(), keyA, artifacts.Meta{Name: "отчёт.html", MediaType: "text/html"})
	if err != nil {
		t.Fatal(err)
	}
	content := artifactstest.Content(1, part+10)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	signed, err := s.PresignGet(t.Context(), keyA, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	resp, body := get(t, signed, "bytes=10-19")
	if resp.StatusCode != 206 || body != string(content[10:20]) {
		t.Errorf("presigned range: got %d with %d bytes", resp.StatusCode, len(body))
	}
	want := `attachment; filename="_____.html"; filename*=UTF-8''%D0%BE%D1%82%D1%87%D1%91%D1%82.html`
	if got := resp.Header.Get("Content-Disposition"); got != want {
		t.Errorf("Content-Disposition: got %q, want %q", got, want)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("Content-Type: got %q", got)
	}
	for what, other := range map[string]string{
		"another key":         strings.Replace(signed, "/acme/a?", "/acme/b?", 1),
		"another disposition": strings.Replace(signed, "attachment", "inline", 1),
	} {
		if resp, _ := get(t, other, ""); resp.StatusCode != 403 || other == signed {
			t.Errorf("signed for one, used for %s: got %d, want 403", what, resp.StatusCode)
		}
	}
	for _, ttl := range []time.Duration{0, -time.Hour, time.Millisecond, 8 * 24 * time.Hour} {
		if _, err := s.PresignGet(t.Context(), keyA, ttl); err == nil {
			t.Errorf("ttl %v was accepted", ttl)
		}
	}
}

func get(t *testing.T, url, rng string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rng != "" {
		r.Header.Set("Range", rng)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}
