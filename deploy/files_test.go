package deploy

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// An edge that may open few files takes as many connections as leave some for itself, tells the next ones so instead of
// letting them wait, and goes on with its streams.
func TestAnEdgeThatMayOpenFewFiles(t *testing.T) {
	few := filepath.Join(t.TempDir(), "runlog")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n 120\nexec %s \"$@\"\n", testservers.RunlogBinary(t))
	if err := os.WriteFile(few, []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	f := startFrontOf(t, few)
	s, err := f.scribe(t.Context(), "full", "run-full")
	if err != nil {
		t.Fatal(err)
	}
	var open []*bufio.Reader
	for range 200 {
		_, rd, resp := knock(t, f.addrs[0])
		if resp.StatusCode == http.StatusOK {
			open = append(open, rd)
			continue
		}
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Fatalf("stream %d: %s", len(open), resp.Status)
		}
		break
	}
	if len(open) < 40 || len(open) > 119 {
		t.Errorf("%d streams were taken", len(open))
	}
	if err := s.say(t.Context(), "still here"); err != nil {
		t.Fatal(err)
	}
	for i, rd := range open {
		if err := readTo(rd, "still here"); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if !strings.Contains(f.edges[0].Log(), "ulimit -n") {
		t.Error("the log does not say why")
	}
}
