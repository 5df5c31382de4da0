package edge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/event"
)

// unanswered keeps an io.EOF in the place of an answer from being taken for the end of
// a stream.
func unanswered(err error) error { return fmt.Errorf("no answer: %s", err) }

// An httpStream is a stream in a body.
type httpStream struct {
	resp *http.Response
	rd   *bufio.Reader
}

func (s *httpStream) close() { s.resp.Body.Close() }

type sseStream struct{ *httpStream }

func (s *sseStream) next() (m message, err error) {
	for {
		line, err := s.rd.ReadString('\n')
		if err != nil {
			if err == io.EOF && (line != "" || m != (message{})) {
				err = complaint{fmt.Errorf("ends inside %+v %q", m, line)}
			}
			return m, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case line == "\n" && m != (message{}):
			return m, nil
		case name == "id":
			m.id = value
		case name == "event":
			m.event = value
		case name == "data":
			m.data += value
		case name != "" && name != "retry":
			return m, complaint{fmt.Errorf("odd line %q", line)}
		}
	}
}

type lineStream struct {
	*httpStream
	read func(line []byte) (message, error)
}

func (s *lineStream) next() (message, error) {
	for {
		line, err := s.rd.ReadBytes('\n')
		if err != nil {
			if err == io.EOF && len(line) > 0 {
				err = complaint{fmt.Errorf("ends inside %q", line)}
			}
			return message{}, err
		}
		m, err := s.read(line[:len(line)-1])
		if err != nil {
			return m, complaint{err}
		}
		if m.event != "ping" {
			return m, nil
		}
	}
}

// readObject reads a line or message that has the fields of SSE.
func readObject(line []byte) (message, error) {
	var m struct {
		ID    string          `json:"id"`
		Event string          `json:"event"`
		Data  json.RawMessage `json:"data"`
	}
	err := json.Unmarshal(line, &m)
	return message{m.ID, m.Event, string(m.Data)}, err
}

// readNative reads a line of the native dialect, with what SSE would say around it.
func readNative(line []byte) (message, error) {
	var head struct {
		Type string     `json:"type"`
		Seq  *event.Seq `json:"seq"`
		ID   string     `json:"id"`
	}
	err := json.Unmarshal(line, &head)
	m := message{event: head.Type, data: string(line)}
	if head.Seq != nil {
		m.id = head.Seq.String()
	}
	if _, epoch, ok := strings.Cut(head.ID, "~"); ok {
		m.id += "~" + epoch
	}
	if bare, ok := strings.CutPrefix(m.data, `{"type":`+strconv.Quote(head.Type)+`,`); ok {
		if id := `"id":` + strconv.Quote(head.ID) + `,`; head.ID != "" {
			bare = strings.TrimPrefix(bare, id)
		}
		m.data = "{" + bare
	}
	return m, err
}

type socketStream struct {
	ctx  context.Context
	conn *websocket.Conn
}

func (v *visitor) openSocket(ctx context.Context, target, after string, client *http.Client) (viewer, error) {
	conn, resp, err := websocket.Dial(ctx, target, &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{"runlog.v1"}})
	if err != nil {
		if resp != nil {
			return nil, fmt.Errorf("%w: %w", refused{resp.StatusCode}, err)
		}
		return nil, unanswered(err)
	}
	conn.SetReadLimit(8 << 20)
	first := map[string]string{}
	if after != "" {
		first["after"] = after
	}
	s := &socketStream{ctx, conn}
	if strings.Contains(target, "snapshot=1") { // says all that the first message would
		return s, nil
	}
	if err := conn.Write(ctx, websocket.MessageText, event.Encode(first)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socketStream) close() { _ = s.conn.CloseNow() }

func (s *socketStream) next() (message, error) {
	said := ""
	for {
		_, raw, err := s.conn.Read(s.ctx)
		switch code := websocket.CloseStatus(err); {
		case code == websocket.StatusNormalClosure:
			return message{}, io.EOF
		case code >= 4000 || code == websocket.StatusInternalError:
			return message{}, complaint{fmt.Errorf("%w: %s", err, said)}
		case err != nil:
			return message{}, err
		}
		if !strings.HasPrefix(string(raw), `{"error":`) {
			return readObject(raw)
		}
		said = string(raw)
	}
}
