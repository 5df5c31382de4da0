package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A bench has the binaries, a directory, and the processes that run.
type bench struct {
	runlog, nats, dir string
	rounds            int
	leases            string
	dirs              int // made so far
	procs             []*proc
}

// A proc is one process under measurement.
type proc struct {
	cmd   *exec.Cmd
	addr  string        // host:port that it listens on
	ready time.Duration // from its start until it was ready
}

func (p *proc) pid() int    { return p.cmd.Process.Pid }
func (p *proc) url() string { return "http://" + p.addr }

// close stops what still runs and removes the directory.
func (b *bench) close() error {
	for _, p := range slices.Backward(b.procs) {
		p.stop()
	}
	return os.RemoveAll(b.dir)
}

func (b *bench) newDir(kind string) (string, error) {
	b.dirs++
	dir := filepath.Join(b.dir, kind+strconv.Itoa(b.dirs))
	return dir, os.MkdirAll(dir, 0o700)
}

// readyWait bounds the start of a process.
const readyWait = 30 * time.Second

// start runs a binary and waits until ready says so.
func (b *bench) start(addr string, ready func() bool, dir string, env []string, bin string, args ...string) (*proc, error) {
	p := &proc{cmd: exec.Command(bin, args...), addr: addr}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), env...)
	out, err := os.Create(filepath.Join(b.dir, "out-"+filepath.Base(dir)+"-"+filepath.Base(bin)))
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	b.procs = append(b.procs, p)
	for !ready() {
		if time.Since(began) > readyWait {
			said, _ := os.ReadFile(out.Name())
			return nil, fmt.Errorf("%s %v is not ready after %s: %s", bin, args, readyWait, said)
		}
		time.Sleep(time.Millisecond)
	}
	p.ready = time.Since(began)
	return p, out.Close()
}

// stop ends a process and waits for it.
func (p *proc) stop() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// kill ends a process as a crash does.
func (p *proc) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// freeAddr is a loopback address that nobody listens on just now.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// server starts a nats-server with JetStream on files.
func (b *bench) server() (*proc, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := b.newDir("nats")
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	return b.start(addr, func() bool { return listens(addr) }, dir, nil, b.nats, "-a", "127.0.0.1", "-p", port, "-js", "-sd", dir)
}

func listens(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// edge starts a stateless edge on a server.
func (b *bench) edge(server *proc) (*proc, error) {
	dir, err := b.newDir("edge")
	if err != nil {
		return nil, err
	}
	return b.serve(dir, []string{
		"RUNLOG_NATS_URL=nats://" + server.addr,
		"RUNLOG_CATALOG_URL=sqlite:" + filepath.Join(dir, "catalog.db"),
		"RUNLOG_ARTIFACTS_URL=dir:" + filepath.Join(dir, "artifacts"),
	}, "edge")
}

// dev starts the whole platform in one process, with the built-in agents if
// agents is empty.
func (b *bench) dev(dir, agents string) (*proc, error) {
	return b.serve(dir, []string{"RUNLOG_AGENTS=" + agents}, "dev", "--data", filepath.Join(dir, "data"))
}

func (b *bench) serve(dir string, env []string, args ...string) (*proc, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return b.start(addr, readyAt(addr), dir, append(env, "RUNLOG_LISTEN="+addr), b.runlog, args...)
}

func readyAt(addr string) func() bool {
	return func() bool {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}
}
