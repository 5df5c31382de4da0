package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

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

// line writes what the log does not hold: snapshot, reset, heartbeat.
func (v jsonView) line(e event.Event) {
	seq := ""
	if e.Seq > 0 {
		seq = fmt.Sprintf(`,"seq":%d`, e.Seq)
	}
	var data bytes.Buffer // on one line, however the server wrote it
	if json.Compact(&data, e.Data) != nil {
		data.Reset()
		data.Write(event.Encode(string(e.Data)))
	}
	fmt.Fprintf(v.out, "{\"type\":%s%s,\"data\":%s}\n", event.Encode(e.Type), seq, &data)
}

func (v jsonView) tick()            {}
func (v jsonView) note(line string) { fmt.Fprintln(v.err, line) }
func (v jsonView) leave(id string)  { v.note("the run goes on; runlog attach " + id) }
