package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/worker/tool"
	"github.com/runlog-dev/runlog/worker/tool/mcp"
)

func TestCloseEndsTheWholeGroup(t *testing.T) {
	// Neither it nor its child minds SIGTERM.
	s := open(t, "stubborn", func(o *mcp.Options) { o.Grace = 50 * time.Millisecond })
	server := textOf(do(t, s, "ping", `{}`))
	child := textOf(do(t, s, "child", `{}`))
	s.Close()
	awaitGone(t, server)
	awaitGone(t, child)
}

func TestNothingSurvivesAKilledWorker(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=worker")
	cmd.Stderr = os.Stderr
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
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	for _, pid := range strings.Fields(line) {
		awaitGone(t, pid)
	}
}

// runWorker has a server that has a child, prints their pids, and waits.
func runWorker() error {
	s := mcp.Open(mcp.Options{Name: "stubborn", Command: []string{os.Args[0]}, Env: map[string]string{roleEnv: "stubborn"}})
	tools, err := s.Tools(context.Background())
	if err != nil {
		return err
	}
	var pids []string
	for _, tl := range tools {
		if name := tl.Spec().Name; name == "ping" || name == "child" {
			res, err := tl.Call(context.Background(), tool.Call{Args: `{}`})
			if err != nil {
				return err
			}
			pids = append(pids, textOf(res))
		}
	}
	fmt.Println(strings.Join(pids, " "))
	time.Sleep(time.Minute)
	return nil
}

// awaitGone waits for the end of a process that is not our child, or a zombie.
func awaitGone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("no pid: %q", pid)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if errors.Is(syscall.Kill(n, 0), syscall.ESRCH) || isZombie(n) {
			return
		}
	}
	syscall.Kill(n, syscall.SIGKILL)
	t.Errorf("process %d was still there", n)
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}
