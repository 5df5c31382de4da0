package interop

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
)

var exact = regexp.MustCompile(`^\d+\.\d+\.\d+(-[\w.]+)?$`)

func dependencies(t *testing.T, manifest string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Dependencies    map[string]string `json:"dependencies"`
		DevDependencies map[string]string `json:"devDependencies"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("%s: %v", manifest, err)
	}
	if len(m.DevDependencies) > 0 {
		t.Errorf("%s: put devDependencies under dependencies", manifest)
	}
	return m.Dependencies
}
