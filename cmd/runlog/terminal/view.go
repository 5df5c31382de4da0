package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// A view shows a stream to whoever reads stdout.
type view interface {
	event(e event.Event)
	tick()            // a second has passed
	note(line string) // something about the viewer's own doing, beside the stream
	leave(id string)  // the viewer goes, the run does not
}

// jsonView is the view of scripts: the events as they came, a line each.
type jsonView struct{ out, err io.Writer }

func (v jsonView) event(e event.Event) {
	if e.ID != "" {
		_, _ = v.out.Write(e.AppendLine(nil))
		return
	}
	v.line(e)
}

// line writes what the log does not hold (snapshot, reset, heartbeat) as the
// server's own NDJSON does: the type among the members.
func (v jsonView) line(e event.Event) {
	var data bytes.Buffer // on one line, however the server wrote it
	if json.Compact(&data, e.Data) != nil {
		data.Reset()
		data.Write(event.Encode(string(e.Data)))
	}
	members, isObject := strings.CutPrefix(data.String(), "{")
	switch {
	case !isObject:
		members = `,"data":` + members + "}"
	case members != "}":
		members = "," + members
	}
	fmt.Fprintf(v.out, "{\"type\":%s%s\n", event.Encode(e.Type), members)
}

func (v jsonView) tick()            {}
func (v jsonView) note(line string) { fmt.Fprintln(v.err, line) }
func (v jsonView) leave(id string)  { v.note("the run goes on; runlog attach " + id) }
