package housetest

import (
	"strings"
	"testing"
)

// Every package says in one sentence what it is for.
func TestEveryPackageHasADocSentence(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue // tests only
		}
		// Doc is the synopsis: the first sentence, with its full stop if it has one.
		if len(strings.Fields(p.Doc)) < 5 || !strings.HasSuffix(p.Doc, ".") {
			t.Errorf("%s: package comment %q is no sentence: say what the package is for", p.ImportPath, p.Doc)
		}
	}
}
