package scenarios

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

var update = flag.Bool("update", false, "write the vectors anew")

const vectors = "../../../event/testdata/vectors"

// TestVectors keeps the golden vectors of event/testdata/vectors: NAME.ndjson is
// a log, NAME.fold.json what clients may see of its fold, for clients in other
// languages to hold theirs to.
func TestVectors(t *testing.T) {
	for _, sc := range All() {
		if sc.Name == "large-result" {
			continue // half a megabyte of the same
		}
		t.Run(sc.Name, func(t *testing.T) {
			var log []byte
			for _, e := range sc.Log() {
				log = e.AppendLine(log)
			}
			keep(t, sc.Name+".ndjson", log)
			// What counts is the fold of the bytes, not of what made them.
			s := event.NewSession(SessionID)
			for line := range bytes.Lines(log) {
				e, err := event.Decode(line)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Apply(e); err != nil {
					t.Fatal(err)
				}
			}
			var fold bytes.Buffer
			if err := json.Indent(&fold, s.EncodePublic(), "", " "); err != nil {
				t.Fatal(err)
			}
			fold.WriteByte('\n')
			keep(t, sc.Name+".fold.json", fold.Bytes())
		})
	}
}

func keep(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join(vectors, name)
	if *update {
		if err := os.MkdirAll(vectors, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./edge/dialect/scenarios -update", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed: if that is meant, and every client can live with it, go test ./edge/dialect/scenarios -update", name)
	}
}
