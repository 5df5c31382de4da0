package stream

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"testing"
	"time"
)

// A keeper still reads what it was given when its write has failed, as HTTP/2 does where a stream ends meanwhile.
type keeper struct {
	*httptest.ResponseRecorder
	has []byte
}

func (k *keeper) Write(b []byte) (int, error) {
	k.has = b
	return 0, errors.New("stream closed")
}

// What a client was sent in a write that failed does not become what another client is sent.
func TestABufferOfAFailedWriteIsNobodyElses(t *testing.T) {
	for range 50 { // a pool may drop what it gets
		k := &keeper{ResponseRecorder: httptest.NewRecorder()}
		out, other := newOutput(k, time.Minute), newOutput(httptest.NewRecorder(), time.Minute)
		if out.put(append(out.buffer(), "mine"...)) != nil || out.flush() == nil {
			t.Fatal("the write did not fail")
		}
		out.release()
		if err := other.put(append(other.buffer(), "yours"...)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(k.has, []byte("mine")) {
			t.Fatalf("%q", k.has)
		}
		other.release()
	}
}
