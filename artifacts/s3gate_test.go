package artifacts_test

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/runlog-dev/runlog/internal/testservers"
)

func init() {
	// The client's pauses between tries are not what is tested here.
	minio.DefaultRetryUnit, minio.DefaultRetryCap = 2*time.Millisecond, 10*time.Millisecond
}

// fault is what a gate does to one request.
type fault int

const (
	pass       fault = iota
	lost             // the connection closes, the server never sees the request
	answerLost       // the server carries it out, the connection closes
	refused          // 503, the server never sees it
)

// gate stands before a real S3 server and breaks requests on purpose.
type gate struct {
	url   string // of a fresh bucket, through the gate
	admin *minio.Client
	down  atomic.Int64 // bytes of bodies sent to the client

	mu   sync.Mutex
	hook func(*http.Request) fault      // nil: pass
	body func(*http.Response) io.Reader // nil: as it is
}

func newGate(t testing.TB) *gate {
	t.Helper()
	bucket, err := url.Parse(testservers.S3(t))
	if err != nil {
		t.Fatal(err)
	}
	q := bucket.Query()
	upstream, err := url.Parse(q.Get("endpoint"))
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	g.admin, err = minio.New(upstream.Host, &minio.Options{
		Creds: credentials.NewStaticV4(q.Get("access_key"), q.Get("secret_key"), ""), BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g.handler(upstream))
	t.Cleanup(srv.Close)
	q.Set("endpoint", srv.URL)
	bucket.RawQuery = q.Encode()
	g.url = bucket.String()
	return g
}

func (g *gate) handler(upstream *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.Out.Host = r.In.Host // it is signed
		},
		ModifyResponse: func(r *http.Response) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			body := io.Reader(r.Body)
			if g.body != nil {
				body = g.body(r)
			}
			r.Body = struct {
				io.Reader
				io.Closer
			}{&counter{body, &g.down}, r.Body}
			return nil
		},
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch g.judge(r) {
		case lost:
			panic(http.ErrAbortHandler)
		case refused:
			w.WriteHeader(http.StatusServiceUnavailable)
		case answerLost:
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
}

func (g *gate) judge(r *http.Request) fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hook == nil {
		return pass
	}
	return g.hook(r)
}

// set replaces what the gate does to requests.
func (g *gate) set(hook func(*http.Request) fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook = hook
}

// setBody replaces what the gate does to the bodies of answers.
func (g *gate) setBody(body func(*http.Response) io.Reader) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.body = body
}

// cutAfter ends the body of each ranged answer after so many bytes.
func cutAfter(limit int64) func(*http.Response) io.Reader {
	return func(r *http.Response) io.Reader {
		if r.StatusCode != http.StatusPartialContent {
			return r.Body
		}
		return io.MultiReader(io.LimitReader(r.Body, limit), brokenReader{})
	}
}

// backdate makes the named times in listings old.
func backdate(elements ...string) func(*http.Response) io.Reader {
	return func(r *http.Response) io.Reader {
		if r.Header.Get("Content-Type") != "application/xml" {
			return r.Body
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return brokenReader{}
		}
		for _, e := range elements {
			old := regexp.MustCompile("<" + e + ">[^<]*</" + e + ">")
			b = old.ReplaceAll(b, []byte("<"+e+">2020-01-02T03:04:05.000Z</"+e+">"))
		}
		r.ContentLength = -1
		r.Header.Del("Content-Length")
		return bytes.NewReader(b)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// objects lists what is in the bucket, without the gate.
func (g *gate) objects(t testing.TB) []string {
	t.Helper()
	bucket, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for o := range g.admin.ListObjects(t.Context(), bucket.Host, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		names = append(names, o.Key)
	}
	return names
}

func isCompletion(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.Contains(r.URL.RawQuery, "uploadId=")
}
