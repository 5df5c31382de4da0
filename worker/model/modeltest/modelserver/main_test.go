package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The test binary is the program when this is set.
const asProgram = "MODELSERVER_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

func TestServesAScriptAndTellsWhatItWasAsked(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(script, []byte("by: turn\nsteps:\n  - text: hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(line)
	res, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"test","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(body), "hello") {
		t.Errorf("answer %q, %v", body, err)
	}
	_ = res.Body.Close()
	res, err = http.Get(url + "/requests?wait=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var list []struct {
		Protocol string
		Step     int
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil || len(list) != 1 || list[0].Protocol != "openai" || list[0].Step != 0 {
		t.Errorf("requests %+v, %v", list, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("end of the program: %v", err)
	}
}

func TestABadScriptIsToldAtOnce(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(script, []byte("steps:\n  - txet: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := program(t, script).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "script.yaml") || !strings.Contains(string(out), "2:5") {
		t.Errorf("got %v, %s", err, out)
	}
}
