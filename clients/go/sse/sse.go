// Package sse reads server-sent events as the WHATWG HTML standard defines them:
// lines that end in LF, CRLF or CR, one leading byte order mark, comments,
// data of several lines, ids, retry; a last block that no blank line ends is
// dropped, because it may have been cut.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

// DefaultMaxMessage bounds a message when Options say nothing. A snapshot is one
// message and holds a whole conversation.
const DefaultMaxMessage = 32 << 20

// ErrTooLong means that a message, or a single line, is over the limit. The
// stream cannot be read on from there.
var ErrTooLong = errors.New("message too long")

// A Message is one dispatched block.
type Message struct {
	// ID is the last event id of the stream when the message was dispatched,
	// which an earlier block may have set.
	ID string
	// Event is the value of the block's last event field, else "message".
	Event string
	// Data is the block's data lines joined with LF. It is valid until the next
	// call of Next. The bytes are handed on as they came: invalid UTF-8 is not
	// repaired.
	Data []byte
}

// Options of a Reader; the zero value is the default.
type Options struct {
	MaxMessage int // bytes of one block; 0: DefaultMaxMessage
}

// A Reader takes a stream apart. It is not safe for concurrent use.
type Reader struct {
	in     *bufio.Reader
	max    int
	begun  bool // the place of the byte order mark is behind us
	skipLF bool // the last line ended in CR: an LF belongs to it

	line  []byte
	size  int // bytes of the block so far
	data  []byte
	event []byte
	id    string // id buffer: becomes lastID when the block ends

	lastID string
	retry  time.Duration
}

// NewReader reads from r.
func NewReader(r io.Reader, opt Options) *Reader {
	if opt.MaxMessage <= 0 {
		opt.MaxMessage = DefaultMaxMessage
	}
	return &Reader{in: bufio.NewReaderSize(r, 32<<10), max: opt.MaxMessage}
}

// LastID is the id a reconnect should send as Last-Event-ID. Only blocks that
// were complete have moved it.
func (r *Reader) LastID() string { return r.lastID }

// Retry is the reconnection time the stream last asked for; 0 if it asked for none.
func (r *Reader) Retry() time.Duration { return r.retry }

// Next returns the next message. At the clean end of the stream it returns
// io.EOF, also when the last block was not complete; other errors of the
// underlying reader are returned as they are.
func (r *Reader) Next() (Message, error) {
	for {
		line, err := r.readLine()
		if err != nil {
			return Message{}, err
		}
		switch {
		case len(line) == 0:
			if m, ok := r.dispatch(); ok {
				return m, nil
			}
		case line[0] == ':': // a comment: pings may go on for months without a blank line
			r.size -= len(line) + 1
		default:
			r.field(line)
		}
	}
}

// field takes one line that is not blank.
func (r *Reader) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		r.data = append(append(r.data, value...), '\n')
	case "event":
		r.event = append(r.event[:0], value...)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id = string(value)
		}
	case "retry":
		if d, ok := milliseconds(value); ok {
			r.retry = d
		}
	}
}

// dispatch ends the block. One without a data line moves the id and gives nothing.
func (r *Reader) dispatch() (Message, bool) {
	r.lastID, r.size = r.id, 0
	m := Message{ID: r.lastID, Event: "message", Data: r.data}
	if len(r.event) > 0 {
		m.Event = string(r.event)
	}
	r.data, r.event = r.data[:0], r.event[:0]
	if len(m.Data) == 0 {
		return Message{}, false
	}
	m.Data = m.Data[:len(m.Data)-1]
	return m, true
}

// readLine returns the next line without its end. The slice is valid until the
// next call.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		chunk, err := r.chunk()
		if err != nil {
			return nil, err
		}
		end := bytes.IndexAny(chunk, "\r\n")
		take := chunk
		if end >= 0 {
			take = chunk[:end]
		}
		if r.size += len(take) + 1; r.size > r.max {
			return nil, fmt.Errorf("%w: over %d bytes (Options.MaxMessage)", ErrTooLong, r.max)
		}
		r.line = append(r.line, take...)
		if end < 0 {
			_, _ = r.in.Discard(len(take))
			continue
		}
		r.skipLF = chunk[end] == '\r'
		_, _ = r.in.Discard(end + 1)
		return r.line, nil
	}
}

// chunk returns what is buffered, at least a byte, waiting for it if need be. It
// never waits for the byte after a CR: that may be long in coming.
func (r *Reader) chunk() ([]byte, error) {
	if !r.begun {
		r.skipMark()
	}
	for {
		if _, err := r.in.Peek(1); err != nil {
			return nil, err
		}
		buf, _ := r.in.Peek(r.in.Buffered())
		if !r.skipLF || buf[0] != '\n' {
			r.skipLF = false
			return buf, nil
		}
		r.skipLF = false
		_, _ = r.in.Discard(1)
	}
}

// skipMark drops one byte order mark. It looks at one byte at a time, so that a
// stream that begins with something shorter is not kept waiting.
func (r *Reader) skipMark() {
	r.begun = true
	const mark = "\uFEFF"
	for n := 1; n <= len(mark); n++ {
		head, err := r.in.Peek(n)
		if err != nil || string(head) != mark[:n] {
			return
		}
	}
	_, _ = r.in.Discard(len(mark))
}

// milliseconds reads ASCII digits. Beyond a day it says a day.
func milliseconds(value []byte) (time.Duration, bool) {
	const day = 24 * time.Hour
	var ms int64
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		if ms = ms*10 + int64(c-'0'); ms > day.Milliseconds() {
			ms = day.Milliseconds()
		}
	}
	return time.Duration(ms) * time.Millisecond, len(value) > 0
}
