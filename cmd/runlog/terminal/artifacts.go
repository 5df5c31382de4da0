package terminal

import (
	"fmt"
	"maps"
	"slices"

	"github.com/runlog-dev/runlog/event"
)

func (v *textView) artifactStarted(_ event.Event, d event.ArtifactStartedData) {
	v.artifacts[d.ArtifactID] = &writing{name: d.Name}
	v.speaking = ""
	v.redraw()
}

func (v *textView) artifactProgress(_ event.Event, d event.ArtifactProgressData) {
	a := v.artifacts[d.ArtifactID]
	if a == nil {
		a = &writing{name: d.ArtifactID}
		v.artifacts[d.ArtifactID] = a
	}
	a.bytes = d.Bytes
	v.redraw()
}

func (v *textView) artifactCompleted(_ event.Event, d event.ArtifactCompletedData) {
	delete(v.artifacts, d.ArtifactID)
	v.speaking = ""
	v.redraw()
	v.line(v.artifactLine(d.Name, d.MediaType, d.Bytes, d.URL))
}

func (v *textView) artifactLine(name, kind string, bytes int64, url string) string {
	mark := "artifact"
	if v.live {
		mark = v.paint("+", green)
	}
	return fmt.Sprintf("%s %s · %s · %s · %s", mark, oneLine(name, 120), size(bytes), oneLine(kind, 60), oneLine(v.resolve(url), 500))
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
