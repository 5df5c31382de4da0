package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// A lineReader hands on its source line by line, each as the function made it.
type lineReader struct {
	src   *bufio.Reader
	limit int
	each  func(line []byte, over *outline) []byte
	out   []byte // not yet read
}

func (r *lineReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		line, over, err := r.readLine()
		if len(line) == 0 && over == nil && err != nil {
			return 0, err
		}
		r.out = r.each(bytes.TrimRight(line, "\r\n"), over)
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// readLine returns the next line, or the outline of one that is too long.
func (r *lineReader) readLine() ([]byte, *outline, error) {
	var line []byte
	for {
		piece, err := r.src.ReadSlice('\n')
		if len(line)+len(piece) > r.limit {
			over, err := r.skim(line, piece, err)
			return nil, over, err
		}
		line = append(line, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, nil, err
		}
	}
}

// skim reads on to the end of a line without keeping it.
func (r *lineReader) skim(line, piece []byte, err error) (*outline, error) {
	over := &outline{}
	_, _ = over.Write(line) // an outline takes anything
	_, _ = over.Write(piece)
	for errors.Is(err, bufio.ErrBufferFull) {
		piece, err = r.src.ReadSlice('\n')
		_, _ = over.Write(piece)
	}
	return over, err
}

// body reads a whole HTTP body, which is one message.
func (w *wire) body(src io.Reader) io.Reader {
	return &bodyReader{wire: w, src: src}
}

type bodyReader struct {
	wire *wire
	src  io.Reader
	msg  *bytes.Reader // nil before the first Read
}

func (r *bodyReader) Read(p []byte) (int, error) {
	if r.msg == nil {
		msg, err := r.readAll()
		if err != nil {
			return 0, err
		}
		r.msg = bytes.NewReader(msg)
	}
	return r.msg.Read(p)
}

func (r *bodyReader) readAll() ([]byte, error) {
	msg, err := io.ReadAll(io.LimitReader(r.src, int64(r.wire.limit)+1))
	if err != nil {
		return nil, err
	}
	if len(msg) <= r.wire.limit {
		return r.wire.message(msg, nil), nil
	}
	over := &outline{}
	_, _ = over.Write(msg)
	if _, err := io.Copy(over, r.src); err != nil {
		return nil, err
	}
	return r.wire.message(nil, over), nil
}

// An outline follows a JSON object that is too large to keep, and remembers the
// two things that tell whose it is. Bytes before the object do not count.
type outline struct {
	size    int64
	id      []byte // the raw value of "id"
	request bool   // it has a "method"

	depth             int
	inString, escaped bool
	inValue           bool   // past the colon, at depth 1
	key               []byte // of the member at depth 1, with quotes
}

func (o *outline) Write(p []byte) (int, error) {
	o.size += int64(len(p))
	for _, c := range p {
		o.step(c)
	}
	return len(p), nil
}

func (o *outline) step(c byte) {
	if o.inString {
		o.inString = o.escaped || c != '"'
		o.escaped = !o.escaped && c == '\\'
		o.keep(c)
		return
	}
	switch c {
	case '{', '[':
		o.depth++
	case '}', ']':
		o.depth--
	case ':':
		if o.depth == 1 {
			o.inValue = true
			o.request = o.request || string(o.key) == `"method"`
		}
	case ',':
		if o.depth == 1 {
			o.inValue, o.key = false, o.key[:0]
		}
	default:
		o.inString = c == '"'
		o.keep(c)
	}
}

func (o *outline) keep(c byte) {
	switch {
	case o.depth != 1 || c == ' ' || c == '\t':
	case !o.inValue && len(o.key) < 16:
		o.key = append(o.key, c)
	case o.inValue && string(o.key) == `"id"` && len(o.id) < 64:
		o.id = append(o.id, c)
	}
}
