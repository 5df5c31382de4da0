package edge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A slowClient gives a chunk after each pause, and notes the deadline as a
// connection would.
type slowClient struct {
	*httptest.ResponseRecorder
	chunk    int
	pause    time.Duration
	left     int
	deadline time.Time
}

func (c *slowClient) SetReadDeadline(t time.Time) error { c.deadline = t; return nil }
func (c *slowClient) Close() error                      { return nil }

func (c *slowClient) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(c.pause)
	if !c.deadline.IsZero() && time.Now().After(c.deadline) {
		return 0, http.ErrHandlerTimeout
	}
	n := min(c.chunk, c.left, len(b))
	c.left -= n
	return n, nil
}

func TestSlowBodiesAreCutAndSlowLinesAreNot(t *testing.T) {
	for name, c := range map[string]struct {
		client  slowClient
		ok      bool
		atLeast time.Duration // it went on for
		atMost  time.Duration
	}{
		"a phone, 5 MB in ten minutes": {slowClient{chunk: 8 << 10, pause: time.Second, left: 5 << 20}, true, 10 * time.Minute, time.Hour},
		"pauses of 25 s":               {slowClient{chunk: 64 << 10, pause: 25 * time.Second, left: 1 << 20}, true, 6 * time.Minute, time.Hour},
		"a byte a second":              {slowClient{chunk: 1, pause: time.Second, left: 1 << 20}, false, 29 * time.Second, 32 * time.Second},
		"a byte in 29 s":               {slowClient{chunk: 1, pause: 29 * time.Second, left: 1 << 20}, false, 29 * time.Second, 60 * time.Second},
		"nothing":                      {slowClient{chunk: 1, pause: time.Hour, left: 1}, false, 0, time.Hour},
		"fast, and then a long pause":  {slowClient{chunk: 32 << 10, pause: 31 * time.Second, left: 1 << 30}, false, 0, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := c.client
				client.ResponseRecorder = httptest.NewRecorder()
				s := &Server{opts: Options{BodyTimeout: 30 * time.Second}}
				began := time.Now()
				body := s.pace(&client, &client)
				if client.deadline.IsZero() {
					t.Error("a body that nobody reads has no deadline")
				}
				_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, make([]byte, 64<<10))
				took := time.Since(began)
				if (err == nil) != c.ok || took < c.atLeast || took > c.atMost {
					t.Errorf("%v after %s", err, took)
				}
				if c.ok && !client.deadline.IsZero() {
					t.Error("the deadline stays when the body has ended")
				}
			})
		})
	}
}

func TestDrainsAreSpread(t *testing.T) {
	for _, c := range []struct {
		streams int64
		rate    int
		want    time.Duration
	}{{0, 1000, 0}, {1, 1000, time.Millisecond}, {5000, 1000, 5 * time.Second}, {50_000, 1000, 10 * time.Second}, {50_000, 1_000_000, 50 * time.Millisecond}} {
		if got := drainSpread(c.streams, c.rate, 10*time.Second); got != c.want {
			t.Errorf("%d streams at %d/s: %s, want %s", c.streams, c.rate, got, c.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seconds [11]int
		began := time.Now()
		for range 10_000 {
			inTurn(10*time.Second, func() {
				mu.Lock()
				defer mu.Unlock()
				seconds[int(time.Since(began)/time.Second)]++
			})
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		for i, n := range seconds[:10] {
			if n < 800 || n > 1200 {
				t.Errorf("%d of 10,000 ended in second %d of 10", n, i)
			}
		}
	})
}
