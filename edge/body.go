package edge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// readBody reads a whole body of at most limit bytes, which has to be UTF-8
// and not to nest without end.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := readBytes(w, r, limit)
	if err != nil {
		return nil, err
	}
	if err := checkUTF8(body); err != nil {
		return nil, err
	}
	return body, checkDepth(body)
}

// readBytes is readBody for what is decoded, and looked through, next.
func readBytes(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if err := checkCoding(w, r); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(counted(r, http.MaxBytesReader(w, r.Body, limit)))
	var tooLarge *http.MaxBytesError
	var full *Problem
	switch {
	case errors.As(err, &full):
		return nil, full
	case errors.As(err, &tooLarge):
		return nil, problem(http.StatusRequestEntityTooLarge, event.CodeTooLarge, "the body is larger than %d bytes; send files to /v1/artifacts", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errSlowBody
	case err != nil:
		return nil, bad("", "the body could not be read: %s", err)
	}
	return body, weigh(r, body)
}

// checkCoding refuses a body that is compressed. As JSON it would be none, and as an
// artifact it would come back as something else than its media type says.
func checkCoding(w http.ResponseWriter, r *http.Request) error {
	coding := r.Header.Get("Content-Encoding")
	if coding == "" || strings.EqualFold(coding, "identity") {
		return nil
	}
	w.Header().Set("Accept-Encoding", "identity")
	return problem(http.StatusUnsupportedMediaType, event.CodeBadRequest, "Content-Encoding: %s is not read here; send the body as it is", coding)
}

// readJSON reads a body of the usual limit into v.
func (s *Server) readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	raw, err := readBytes(w, r, s.opts.MaxBody)
	if err != nil {
		return err
	}
	return decode(raw, v)
}

// decode reads JSON strictly: one value of UTF-8, no members that v does not
// have, none twice. An empty body leaves v as it is.
func decode(body []byte, v any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if err := checkUTF8(body); err != nil {
		return err
	}
	if err := checkDepth(body); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return jsonProblem(body, dec.InputOffset(), err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		line, column := place(body, dec.InputOffset())
		return bad("", "the JSON value ends at line %d, column %d, but more follows", line, column)
	}
	return checkMembers(body)
}

// jsonProblem says where and what.
func jsonProblem(body []byte, at int64, err error) *Problem {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		line, column := place(body, syntax.Offset)
		return bad("", "malformed JSON at line %d, column %d: %s", line, column, syntax)
	case errors.Is(err, io.ErrUnexpectedEOF):
		line, column := place(body, int64(len(body)))
		return bad("", "malformed JSON at line %d, column %d: the body ends too early", line, column)
	case errors.As(err, &kind):
		line, column := place(body, kind.Offset)
		return bad(kind.Field, "line %d, column %d: %s cannot be a JSON %s", line, column, cmp.Or(kind.Field, "the body"), kind.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		line, column := place(body, at)
		return bad(name, "line %d, column %d: unknown field %q", line, column, name)
	}
	return bad("", "%s", err)
}

// place is the line and column, from 1, of the byte before offset.
func place(body []byte, offset int64) (line, column int) {
	before := body[:min(max(offset, 0), int64(len(body)))]
	last := bytes.LastIndexByte(before, '\n')
	return 1 + bytes.Count(before, []byte("\n")), max(len(before)-last-1, 1)
}

// writeJSON answers with a value, or with JSON that was made of it. What a call had loaded
// to make it is not needed any more.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, made := v.(json.RawMessage)
	if !made || len(body) == 0 {
		body = event.Encode(v)
	}
	if a, ok := w.(*answer); ok {
		a.call.hold().Encoded(len(body))
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(body)
	_, _ = w.Write([]byte{'\n'})
}
