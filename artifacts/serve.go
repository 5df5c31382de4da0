package artifacts

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
)

const (
	// An artifact never changes, so it is fresh for ever; private, since the
	// URL alone does not entitle anybody; and no proxy may compress it, which
	// would cost the strong ETag and with it resumed downloads.
	cacheControl = "private, max-age=31536000, immutable, no-transform"
	// Should a browser show the bytes as a document after all, it is one
	// without an origin that loads nothing but itself.
	contentPolicy = "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
)

// Serve answers a GET or HEAD request with the artifact and does not close it.
// It handles Range (GET only), If-Range, If-Match, If-None-Match and the date
// conditions: 200, 206, 304, 412, 416. A Range that RFC 9110 lets a server
// ignore (another unit, malformed, more than 16 ranges) is ignored: 200. The
// ETag is the content's SHA-256, the same on every node.
//
// If the store fails before the first byte, nothing is answered and the error,
// one of Object's, is returned. If it fails later, Serve panics with
// http.ErrAbortHandler, so that no client takes a part for the whole. A client
// that went away is no error.
func Serve(w http.ResponseWriter, r *http.Request, o Object) error {
	info := o.Info()
	mediaType, disposition := presentation(info.Meta)
	h := w.Header()
	before := h.Clone()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Disposition", disposition)
	h.Set("ETag", `"`+info.SHA256+`"`)
	h.Set("Cache-Control", cacheControl)
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	body := &watched{o: o}
	late := &lateWriter{ResponseWriter: w}
	http.ServeContent(late, cleanRequest(r, info.Bytes), "", info.Created, body)
	err := body.detach()
	switch {
	case err == nil:
		late.start()
		return nil
	case late.started:
		panic(http.ErrAbortHandler)
	}
	clear(h)
	maps.Copy(h, before)
	return err
}

// watched remembers why reading stopped, which http.ServeContent keeps to
// itself. For several ranges ServeContent reads from a goroutine that may
// outlive it when the client leaves; detach keeps that off the Object.
type watched struct {
	mu  sync.Mutex
	o   Object // nil once detached
	err error
}

func (b *watched) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.o == nil {
		return 0, io.ErrClosedPipe
	}
	n, err := b.o.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func (b *watched) Seek(offset int64, whence int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.o == nil {
		return 0, io.ErrClosedPipe
	}
	return b.o.Seek(offset, whence)
}

// detach ends the use of the Object and returns why reading stopped.
func (b *watched) detach() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.o = nil
	return b.err
}

// lateWriter holds the status line back until there is a byte to follow it.
type lateWriter struct {
	http.ResponseWriter
	status  int
	started bool
}

func (w *lateWriter) WriteHeader(status int) { w.status = status }

func (w *lateWriter) Write(p []byte) (int, error) {
	w.start()
	return w.ResponseWriter.Write(p)
}

func (w *lateWriter) start() {
	if !w.started && w.status != 0 {
		w.ResponseWriter.WriteHeader(w.status)
	}
	w.started = true
}

func (w *lateWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// cleanRequest returns r with a Range that http.ServeContent reads as RFC 9110
// means it.
func cleanRequest(r *http.Request, size int64) *http.Request {
	given := r.Header.Values("Range")
	if len(given) == 0 {
		return r
	}
	clean := ""
	if r.Method == http.MethodGet && len(given) == 1 {
		clean = cleanRange(given[0], size)
	}
	r2 := *r
	r2.Header = r.Header.Clone()
	r2.Header.Del("Range")
	if clean != "" {
		r2.Header.Set("Range", clean)
	}
	return &r2
}
