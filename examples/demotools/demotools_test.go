package demotools_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/examples/demotools"
)

func TestProseHasTheSizeAskedForAndIsText(t *testing.T) {
	for n := range 400 {
		s := demotools.Prose(n)
		if len(s) != n || !utf8.ValidString(s) {
			t.Fatalf("Prose(%d) has %d bytes, valid %v", n, len(s), utf8.ValidString(s))
		}
	}
	if s := demotools.Prose(1000); !strings.Contains(s, "漢字") || strings.Count(s, "\n") < 5 {
		t.Errorf("Prose(1000) is not many lines of many scripts: %q", s)
	}
}

func TestMainEndsWithItsInput(t *testing.T) {
	if err := demotools.Main(context.Background(), strings.NewReader(""), io.Discard); err != nil {
		t.Errorf("at the end of input: %v", err)
	}
}

// A server that is told to stop does not wait for a tool that sleeps.
func TestMainEndsWithItsContextAndCancelsCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	in, feed := io.Pipe()
	out, answers := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- demotools.Main(ctx, in, answers) }()
	go io.Copy(io.Discard, out)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":60000}}}`,
	} {
		if _, err := io.WriteString(feed, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the server still waits for the sleeping tool")
	}
}
