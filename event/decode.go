package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Decode reads one event from its JSON line. Unknown types and fields of data
// are kept as they are.
func Decode(line []byte) (Event, error) {
	e, err := new(Decoder).Decode(line)
	if err != nil {
		return Event{}, err
	}
	e.Data = bytes.Clone(e.Data)
	return e, nil
}

// A Decoder reads lines that follow each other and that nobody changes afterwards: an
// event's data is a part of its line, and strings that it has in common with the one
// before it are kept once for both. The zero value works.
type Decoder struct {
	last  Event // without its data, which is a part of its line
	plain bool
}

// Decode reads the next line.
func (d *Decoder) Decode(line []byte) (Event, error) { return d.read(line, valid) }

// Plain reports whether the last line was written as AppendLine writes it.
func (d *Decoder) Plain() bool { return d.plain }

// DecodeAgain is Decode for a line that was decoded before and is Plain: its data need
// not be looked through once more.
func (d *Decoder) DecodeAgain(line []byte) (Event, error) {
	return d.read(line, func([]byte) bool { return true })
}

func (d *Decoder) read(line []byte, valid func(data []byte) bool) (Event, error) {
	e, ok := d.parseLine(line)
	d.plain = ok && valid(e.Data)
	var err error
	if !d.plain {
		e, err = parseJSON(line)
	}
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	d.last = e
	d.last.Data = nil
	return e, nil
}

// parseJSON reads any JSON of an event.
func parseJSON(line []byte) (e Event, err error) {
	err = json.Unmarshal(line, &e)
	return e, err
}

// parseLine reads a line as AppendLine writes it, which all lines of a log are:
// ten times as fast as encoding/json, since each process that looks at a session
// decodes each of its events. What is written otherwise is not ok, and left to
// encoding/json, as is what has data that is not valid.
func (d *Decoder) parseLine(line []byte) (Event, bool) {
	m := members{bytes.TrimSuffix(line, []byte("\n")), true}
	e := Event{V: Version}
	m.envelope(&e, &d.last)
	data, ended := bytes.CutSuffix(m.rest, []byte("}"))
	e.Data = data
	return e, m.ok && ended && len(data) > 0 && data[0] == '{'
}

// envelope reads what comes before data; strings that are those of last are taken
// from there.
func (m *members) envelope(e, last *Event) {
	m.expect(`{"v":1,"seq":`)
	e.Seq = m.seq()
	e.ID = m.text(`,"id":"`, "")
	e.Type = Type(m.text(`,"type":"`, string(last.Type)))
	e.Time = m.time(`,"time":"`)
	e.SessionID = m.text(`,"session_id":"`, last.SessionID)
	e.RunID = m.optional(`,"run_id":"`, last.RunID)
	e.TraceID = m.optional(`,"trace_id":"`, last.TraceID)
	e.CommandID = m.optional(`,"command_id":"`, last.CommandID)
	e.Agent = m.optional(`,"agent":"`, last.Agent)
	e.Internal = m.cut(`,"internal":true`)
	m.expect(`,"data":`)
}

// members are the members of an envelope that are not read yet; ok as long as
// they are where they belong.
type members struct {
	rest []byte
	ok   bool
}

func (m *members) begins(prefix string) bool {
	return len(m.rest) >= len(prefix) && string(m.rest[:len(prefix)]) == prefix
}

func (m *members) cut(prefix string) (found bool) {
	if found = m.begins(prefix); found {
		m.rest = m.rest[len(prefix):]
	}
	return found
}

func (m *members) expect(prefix string) { m.ok = m.cut(prefix) && m.ok }

// text reads a plain string: ASCII without escapes. It is like, which was read
// before, if it is the same.
func (m *members) text(prefix, like string) string {
	m.expect(prefix)
	if n := len(like); n > 0 && len(m.rest) > n && m.rest[n] == '"' && string(m.rest[:n]) == like {
		m.rest = m.rest[n+1:]
		return like
	}
	return string(m.plain())
}

func (m *members) plain() []byte {
	for i := 0; i < len(m.rest) && m.ok; i++ {
		switch c := m.rest[i]; {
		case c == '"':
			b := m.rest[:i]
			m.rest = m.rest[i+1:]
			return b
		case c < ' ' || c > '~' || c == '\\':
			m.ok = false
		}
	}
	m.ok = false
	return nil
}

func (m *members) optional(prefix, like string) string {
	if !m.begins(prefix) {
		return ""
	}
	return m.text(prefix, like)
}

// seq reads a number that has no more than 18 digits.
func (m *members) seq() (n Seq) {
	i := 0
	for ; i < len(m.rest) && i < 18 && isDigit(m.rest[i]); i++ {
		n = 10*n + Seq(m.rest[i]-'0')
	}
	if i == 0 || m.rest[0] == '0' {
		m.ok = false
	}
	m.rest = m.rest[i:]
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// time reads the one form in which the log writes times.
func (m *members) time(prefix string) Time {
	m.expect(prefix)
	s := m.plain()
	const form = "0000-00-00T00:00:00.000000Z"
	if len(s) != len(form) {
		m.ok = false
		return Time{}
	}
	var n [7]int // year … second, microsecond
	field := 0
	for i := range len(form) {
		switch {
		case form[i] == '0' && isDigit(s[i]):
			n[field] = 10*n[field] + int(s[i]-'0')
		case form[i] != '0' && s[i] == form[i]:
			field++
		default:
			m.ok = false
			return Time{}
		}
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 1000*n[6], time.UTC)
	if t.Month() != time.Month(n[1]) || t.Day() != n[2] || n[3] > 23 || n[4] > 59 || n[5] > 59 {
		m.ok = false // there is no such day
	}
	return Time{t}
}
