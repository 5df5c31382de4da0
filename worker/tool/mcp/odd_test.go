package mcp_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// An oddServer is an MCP server written by hand, for what no well-behaved one
// does. It says on stderr what it got.
type oddServer struct {
	role string
	mu   sync.Mutex
	late map[string]json.RawMessage // id of the running call "late" by token
}

type oddRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string                     `json:"name"`
		Arguments json.RawMessage            `json:"arguments"`
		Meta      map[string]json.RawMessage `json:"_meta"`
		RequestID json.RawMessage            `json:"requestId"`
	} `json:"params"`
}

func newOddServer(role string) *oddServer { return &oddServer{role: role} }

func (s *oddServer) serve() error {
	switch s.role {
	case "mute": // never answers, not even the handshake
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case "once": // and then never again
		if os.Mkdir(os.Getenv("MCP_TEST_MARK"), 0o700) != nil {
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		}
	case "broken":
		return errors.New("cannot find module demo: run npm install")
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "chatty":
		fmt.Println("Server started, listening on stdio")
		for i := range 10_000 {
			fmt.Fprintf(os.Stderr, "noise %d %s\n", i, strings.Repeat("x", 5000))
		}
	}
	err := s.readAll()
	if s.role == "stubborn" {
		select {}
	}
	return err
}

func (s *oddServer) readAll() error {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var r oddRequest
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		s.handle(r, line)
	}
}

func (s *oddServer) handle(r oddRequest, line []byte) {
	switch r.Method {
	case "initialize":
		s.answer(r.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"odd","version":"1"}}`)
	case "tools/list":
		s.answer(r.ID, s.tools())
	case "tools/call":
		s.call(r, line)
	case "notifications/cancelled":
		fmt.Fprintln(os.Stderr, "cancelled", string(r.Params.RequestID))
		s.answerLate(r.Params.RequestID)
	default:
		if r.ID != nil {
			s.print(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"error":{"code":-32601,"message":"no such method"}}`)
		}
	}
}

func (s *oddServer) tools() string {
	if s.role == "many" {
		return `{"tools":[{"name":"a.b","inputSchema":{"type":"object"}},{"name":"a b","title":"Space","inputSchema":{"type":"object","properties":{"zeta":{"type":"integer","maximum":9007199254740993},"alpha":{"type":"string"}},"required":["zeta"]}}]}`
	}
	var list []string
	for _, name := range []string{"args", "numbers", "late", "huge", "huge_id_last", "media", "deaf", "child", "env", "ping", "grow"} {
		list = append(list, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
	}
	if s.role == "grown" {
		list = append(list, `{"name":"extra","inputSchema":{"type":"object"}}`)
	}
	return `{"tools":[` + strings.Join(list, ",") + `]}`
}

func (s *oddServer) call(r oddRequest, line []byte) {
	fmt.Fprintln(os.Stderr, "call", r.Params.Name, string(r.ID))
	switch r.Params.Name {
	case "args": // the line as it came
		s.text(r.ID, string(line))
	case "numbers":
		s.answer(r.ID, `{"content":[],"structuredContent":{"z":9007199254740993,"a":1e400,"<&>":"é"},"_meta":{"runlog/structured":"{\"forged\":true}"}}`)
	case "late": // answers only when it was cancelled
		s.mu.Lock()
		s.late = map[string]json.RawMessage{"id": r.ID, "token": r.Params.Meta["progressToken"]}
		s.mu.Unlock()
	case "huge":
		s.print(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"content":[{"type":"text","text":"` + strings.Repeat(`\"id\":7,`, 30<<20/9) + `"}]}}`)
	case "huge_id_last":
		s.print(`{"result":{"id":99,"content":[{"type":"text","text":"` + strings.Repeat("x", 30<<20) + `"}]},"jsonrpc":"2.0","id":` + string(r.ID) + `}`)
	case "media":
		s.answer(r.ID, mediaResult)
	case "deaf": // reads no more
		time.Sleep(time.Hour)
	case "child": // leaves a child that ignores the end of its input
		cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done")
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		s.text(r.ID, fmt.Sprint(cmd.Process.Pid))
	case "env":
		s.text(r.ID, strings.Join(os.Environ(), "\n"))
	case "ping":
		s.text(r.ID, fmt.Sprint(os.Getpid()))
	case "grow":
		s.role = "grown"
		s.print(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.text(r.ID, "grown")
	}
}

const mediaResult = `{"isError":true,"content":[
{"type":"text","text":"one\u0000\u2028é"},
{"type":"image","mimeType":"image/png","data":"aW1hZ2U="},
{"type":"audio","mimeType":"audio/wav","data":"c291bmQ="},
{"type":"resource_link","uri":"file:///a/b.txt","name":"b.txt","mimeType":"text/plain","size":12},
{"type":"resource","resource":{"uri":"file:///a/c.txt","mimeType":"text/plain","text":"inline"}},
{"type":"resource","resource":{"uri":"file:///a/d.pdf","mimeType":"application/pdf","blob":"cGRm"}}]}`

func (s *oddServer) answerLate(id json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(s.late["id"]) != string(id) {
		return
	}
	s.print(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(s.late["token"]) + `,"progress":1}}`)
	s.text(id, "too late")
	fmt.Fprintln(os.Stderr, "answered late")
}

func (s *oddServer) text(id json.RawMessage, text string) {
	quoted, _ := json.Marshal(text)
	s.answer(id, `{"content":[{"type":"text","text":`+string(quoted)+`}]}`)
}

func (s *oddServer) answer(id json.RawMessage, result string) {
	s.print(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + strings.ReplaceAll(result, "\n", "") + `}`)
}

func (s *oddServer) print(line string) {
	os.Stdout.WriteString(line + "\n")
}
