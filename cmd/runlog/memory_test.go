package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// The collector does not run by itself here: what goes back goes back because the
// process is quiet.
func TestAQuietProcessGivesItsGarbageBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const garbage = 64 << 20
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- tidyWhenQuiet(ctx) }()
	for range 64 {
		junk = make([]byte, garbage/64)
	}
	junk = nil
	before := resident()
	for deadline := time.Now().Add(30 * time.Second); resident() > before-garbage*3/4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d MB of %d were kept", resident()>>20, before>>20)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

var junk []byte

// resident is what the system has given and not got back, bytes.
func resident() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64() - m[1].Value.Uint64())
}
