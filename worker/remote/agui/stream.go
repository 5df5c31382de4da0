package agui

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
)

// maxEvent bounds one event of a server in bytes.
const maxEvent = 8 << 20

// eventsOf reads the data of server-sent events. The sequence ends without an
// error at the end of the stream; an event that was not ended there is dropped, as
// the format wants it.
func eventsOf(src io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		lines := bufio.NewScanner(src)
		lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
		var data []byte // each line behind a line end
		for lines.Scan() {
			switch field, value, _ := bytes.Cut(lines.Bytes(), []byte(":")); {
			case len(lines.Bytes()) == 0 && data != nil:
				if !yield(data[1:], nil) {
					return
				}
				data = nil
			case string(field) == "data":
				data = append(append(data, '\n'), bytes.TrimPrefix(value, []byte(" "))...)
			}
			if len(data) > maxEvent {
				yield(nil, huge())
				return
			}
		}
		if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
			yield(nil, huge())
		} else if err != nil {
			yield(nil, err)
		}
	}
}

func huge() error {
	return &model.Error{Code: event.CodeModelError, Message: fmt.Sprintf("an event of the agent's server has more than %d MiB", maxEvent>>20)}
}
