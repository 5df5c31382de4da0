package eventlog

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// Who can write to the stream by hand can write anything: what a frame says of
// itself has to be possible, before somebody makes room for so many events.
func TestAFrameThatSaysNonsenseIsRefused(t *testing.T) {
	k := Key{Tenant: "t", Session: "s"}
	for _, seq := range []string{"", "1", "0-1", "2-1", "1-x", "1-18446744073709551615", "1-40"} {
		h := nats.Header{hdrSeq: []string{seq}}
		if f, err := newFrame(k, 7, h, []byte(`{"v":1}`+"\n")); err == nil {
			t.Errorf("%q: %d to %d", seq, f.First, f.Last)
		}
	}
	if _, err := newFrame(k, 7, nats.Header{hdrSeq: []string{"3-4"}}, []byte("{}\n{}\n")); err != nil {
		t.Error(err)
	}
}
