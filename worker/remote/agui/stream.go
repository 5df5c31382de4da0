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
		r := bufio.NewReaderSize(src, 64<<10)
		var data []byte
		begun := false
		for {
			line, err := readLine(r, maxEvent-len(data))
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(nil, err)
				}
				return
			}
			switch field, value, _ := bytes.Cut(line, []byte(":")); {
			case len(line) == 0 && begun:
				if !yield(data, nil) {
					return
				}
				data, begun = nil, false
			case string(field) == "data":
				if begun {
					data = append(data, '\n')
				}
				data, begun = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
			}
		}
	}
}

// readLine returns the next line without its end. A CR before it is a part of the
// end.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		if line = append(line, piece...); len(line) > limit {
			return nil, &model.Error{Code: event.CodeModelError, Message: fmt.Sprintf("an event of the agent's server has more than %d MiB", maxEvent>>20)}
		}
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
