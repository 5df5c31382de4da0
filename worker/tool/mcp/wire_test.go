package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/runlog-dev/runlog/event"
)

func testWire(limit int, reports *[]string) *wire {
	return &wire{limit: limit, log: slog.New(slog.DiscardHandler), progress: func(token string, p event.Progress) {
		*reports = append(*reports, fmt.Sprintf("%s %v/%v %s", token, p.Progress, p.Total, p.Message))
	}}
}

func TestWireOverStdio(t *testing.T) {
	in := strings.Join([]string{
		`not a message`,
		``,
		`{"jsonrpc":"2.0","method":"notifications\/progress","params":{"progressToken":"t1","progress":1.5,"total":3,"message":"a"}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"text":"says \"progressToken\" and \"inputSchema\""}}` + "\r",
		`{"id":"` + strings.Repeat("é", 20) + `","jsonrpc":"2.0","result":"` + strings.Repeat("x", 300) + `"}`,
		`{"method":"ping","id":9,"params":"` + strings.Repeat("x", 300) + `"}`,
		`{"result":"` + strings.Repeat(`\"id\":3,{`, 300) + `", "id" : 10 }`,
		`{"jsonrpc":"2.0","id":2,"result":{}}`, // without a line end
	}, "\n")
	var reports []string
	w := testWire(250, &reports)
	r := w.lines(iotest.OneByteReader(strings.NewReader(in)), w.stdio)
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	want := []string{
		`"method":"notifications\/progress"`, `"progressToken":7`, `says \"progressToken\"`,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("é", 20) + `","error":{"code":-32000,`,
		`{"jsonrpc":"2.0","id":10,"error"`, `"id":2,"result":{}}`,
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), got)
	}
	for i := range want {
		if !strings.Contains(lines[i], want[i]) || !json.Valid([]byte(lines[i])) {
			t.Errorf("line %d is %s, want it to have %s", i, lines[i], want[i])
		}
	}
	if fmt.Sprint(reports) != "[t1 1.5/3 a]" {
		t.Errorf("reports %q", reports)
	}
}

func TestWireOverSSE(t *testing.T) {
	in := "event: message\r\nid: 1\r\ndata:{\"id\":1,\"result\":{\"structuredContent\":{\"n\":9007199254740993}}}\r\n\r\n: comment\n" +
		"data: {\"id\":2,\"result\":\"" + strings.Repeat("x", 300) + "\"}\n\n"
	var reports []string
	w := testWire(200, &reports)
	got, err := io.ReadAll(w.lines(strings.NewReader(in), w.sse))
	if err != nil {
		t.Fatal(err)
	}
	want := "event: message\nid: 1\n" +
		`data: {"id":1,"result":{"_meta":{"runlog/structured":"{\"n\":9007199254740993}"},"structuredContent":true}}` + "\n\n: comment\n" +
		`data: {"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"The answer of 327 bytes is over the limit of 200. Ask for less."}}` + "\n\n"
	if string(got) != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestKeepRawLeavesOtherMessagesAlone(t *testing.T) {
	for _, msg := range []string{
		`{"id":1,"result":{"content":[],"structuredContent":null}}`, `{"id":1,"result":null}`, `{"id":1,"result":[1]}`,
		`{"id":1,"error":{"code":1,"message":"structuredContent"}}`, `{"id":1,"result":{"tools":null}}`, `{`, `[]`, ``,
	} {
		got := keepRaw([]byte(msg))
		var a, b any
		if json.Unmarshal([]byte(msg), &a) == nil && (json.Unmarshal(got, &b) != nil || fmt.Sprint(a) != fmt.Sprint(b)) {
			t.Errorf("%s became %s", msg, got)
		}
	}
}

// FuzzOutline holds the outline of a message against its decoding.
func FuzzOutline(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"id":2}}`, `{"a":"\"id\":3","id":"x\\\"y"}`, `{"id":null}`, `{"method":"m","id":1}`,
		`{"a":[{"id":1},"}"],"b":{"method":2},"id":-1.5e3}`, ` { "id" : "a b" } `, `{}`, `[]`, `{"":1,"idx":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := &outline{}
		o.Write(data)
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var id any
		var members []string
		if tok, err := d.Token(); err != nil || tok != json.Delim('{') || !json.Valid(data) {
			return
		}
		for d.More() {
			key, _ := d.Token()
			var v json.RawMessage
			if d.Decode(&v) != nil {
				return
			}
			members = append(members, key.(string))
			if key == "id" {
				id = string(v)
			}
		}
		for _, m := range members {
			if strings.ContainsAny(m, "\\\" \t\n\r") || len(m) > 8 || strings.ToValidUTF8(m, "") != m {
				return // a key is compared as it is written
			}
		}
		if strings.Count(fmt.Sprint(members), "id") > 1 || bytes.Contains(data, []byte(`\u00`)) {
			return
		}
		raw, _ := id.(string)
		if len(raw) > 60 || strings.HasPrefix(raw, "{") || strings.HasPrefix(raw, "[") || strings.ContainsAny(raw, " \t\n\r") {
			return
		}
		if got := string(bytes.TrimSpace(o.id)); got != raw {
			t.Errorf("id of %q is %q, want %q", data, got, raw)
		}
		if o.request != strings.Contains(" "+strings.Join(members, " ")+" ", " method ") {
			t.Errorf("request is %v of members %q", o.request, members)
		}
		if o.depth != 0 || o.size != int64(len(data)) {
			t.Errorf("depth %d, size %d of %q", o.depth, o.size, data)
		}
	})
}
