package artifacts

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
)

func newTransport(secure bool) (*http.Transport, error) {
	tr, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	tr.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	tr.ResponseHeaderTimeout = 30 * time.Second
	return tr, nil
}

// ownedBodies sees to it that nothing reads a request's body once RoundTrip
// has returned. net/http goes on sending it when the answer comes early, while
// the S3 client rewinds the same reader for its next try, and the Writer fills
// the same buffer with the next part.
type ownedBodies struct{ base http.RoundTripper }

func (t ownedBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return t.base.RoundTrip(r)
	}
	body := &lentBody{body: r.Body}
	defer body.takeBack()
	r = r.Clone(r.Context())
	r.Body, r.GetBody = body, nil
	return t.base.RoundTrip(r)
}

var errTakenBack = errors.New("the request is over")

// lentBody is a body that can be taken back while somebody reads it.
type lentBody struct {
	mu    sync.Mutex
	body  io.ReadCloser
	taken bool
}

func (b *lentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken {
		return 0, errTakenBack
	}
	return b.body.Read(p)
}

func (b *lentBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken {
		return nil
	}
	return b.body.Close()
}

// takeBack returns when the last Read has.
func (b *lentBody) takeBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = true
	b.body.Close() //nolint:errcheck // closing it twice is harmless: it is memory
}
