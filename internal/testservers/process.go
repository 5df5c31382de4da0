package testservers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = 60 * time.Second // under -race on a loaded machine
	stopTimeout  = 20 * time.Second
)

// A Process is a program that a test starts, stops, kills and pauses by its pid. Its methods may be called from any
// goroutine, except that those which take a start (Start, WaitReady, WaitLog) end the test on failure and therefore
// belong on the test's own goroutine.
//
// What it prints goes to a file that is shown when the test fails.
type Process struct {
	t       testing.TB
	spec    spec
	logPath string

	mu  sync.Mutex // guards run
	run *running   // nil before the first start
}

// spec says how to start a program and how to stop it politely.
type spec struct {
	name  string
	path  string
	args  []string
	env   []string // whole environment
	dir   string   // working directory
	cred  *syscall.Credential
	stop  syscall.Signal // asks it to shut down; SIGTERM if zero
	ready func() error   // nil when it serves; asked again and again; may be nil
}

// running is one life of a process.
type running struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it was waited for
	err  error         // of Wait; read it after done
}

// StartProcess starts a program and ends it with the test. env is added to PATH, HOME and TMPDIR; nothing else of
// the environment of the test is passed on. It does not wait until the program serves: see WaitReady and WaitLog.
func StartProcess(t testing.TB, bin string, args, env []string) *Process {
	t.Helper()
	return startFor(t, spec{name: filepath.Base(bin), path: bin, args: args, env: baseEnv(env)})
}

// startFor starts a process that ends with the test.
func startFor(t testing.TB, s spec) *Process {
	t.Helper()
	p, err := newProcess(t, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.finish)
	p.Start()
	return p
}

// newProcess prepares a process without starting it. t may be nil for one that tests share.
func newProcess(t testing.TB, s spec) (*Process, error) {
	if s.stop == 0 {
		s.stop = syscall.SIGTERM
	}
	dir, err := newDir("log")
	if err != nil {
		return nil, err
	}
	return &Process{t: t, spec: s, logPath: filepath.Join(dir, s.name+".log")}, nil
}

func baseEnv(extra []string) []string {
	env := []string{"TZ=UTC", "LC_ALL=C"}
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "GOCOVERDIR"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return append(env, extra...)
}

// Start starts the process, again after Stop or Kill, and for a server waits until it serves.
func (p *Process) Start() {
	p.t.Helper()
	if err := p.start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Process) start() error {
	if err := p.begin(); err != nil {
		return err
	}
	if p.spec.ready == nil {
		return nil
	}
	return p.await(p.current(), p.spec.ready)
}

// begin starts the process without waiting until it serves.
func (p *Process) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && p.run.alive() {
		return fmt.Errorf("start %s: it is running as pid %d", p.spec.name, p.run.cmd.Process.Pid)
	}
	run, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.spec.name, err)
	}
	p.run = run
	return nil
}

func (p *Process) launch() (*running, error) {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(p.spec.path, p.spec.args...)
	cmd.Env, cmd.Dir = p.spec.env, p.spec.dir
	cmd.Stdout, cmd.Stderr = log, log // a file: Wait does not hang on a grandchild that keeps it open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.spec.cred}
	endWithParent(cmd.SysProcAttr, p.deathSignal())
	run := &running{cmd: cmd, done: make(chan struct{})}
	if err := spawn(cmd); err != nil {
		return nil, err
	}
	go run.wait()
	return run, nil
}

// deathSignal is what the process gets when the test process dies. Postgres has to take its children along.
func (p *Process) deathSignal() syscall.Signal {
	if p.spec.stop == syscall.SIGINT {
		return syscall.SIGQUIT
	}
	return syscall.SIGKILL
}

func (r *running) wait() {
	r.err = r.cmd.Wait()
	close(r.done)
}

func (r *running) alive() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// spawn starts every command from one thread that never ends, because the kernel sends a parent-death signal when
// the thread that forked ends, not the process.
func spawn(cmd *exec.Cmd) error {
	startSpawner()
	reply := make(chan error, 1)
	spawner <- func() { reply <- cmd.Start() }
	return <-reply
}

var (
	spawner      = make(chan func())
	startSpawner = sync.OnceFunc(func() {
		go func() {
			runtime.LockOSThread()
			for f := range spawner {
				f()
			}
		}()
	})
)

// Stop asks the process to shut down (SIGTERM, or what the server takes for a clean end) and waits for its end. One
// that is not running is left alone.
func (p *Process) Stop() {
	p.t.Helper()
	if err := p.end(p.spec.stop); err != nil {
		p.t.Error(err)
	}
}

// Kill ends the process with SIGKILL and waits until it is gone. One that is not running is left alone.
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.end(syscall.SIGKILL); err != nil {
		p.t.Error(err)
	}
}

// Signal sends a signal without waiting for what it does.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.signal(sig); err != nil {
		p.t.Error(err)
	}
}

// Pause freezes the process (SIGSTOP): its sockets stay open and nothing is read or written. It returns when the
// kernel has stopped every thread of it.
func (p *Process) Pause() {
	p.t.Helper()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		p.t.Error(err)
		return
	}
	if err := p.awaitStopped(); err != nil {
		p.t.Error(err)
	}
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	p.t.Helper()
	p.Signal(syscall.SIGCONT)
}

// PID returns the pid of the present or last life of the process.
func (p *Process) PID() int {
	return p.current().cmd.Process.Pid
}

// Done is closed when the present life of the process has ended.
func (p *Process) Done() <-chan struct{} {
	return p.current().done
}

// Wait waits for the process to end by itself and returns its exit error, as exec.Cmd.Wait does.
func (p *Process) Wait() error {
	run := p.current()
	<-run.done
	return run.err
}

func (p *Process) current() *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (p *Process) signal(sig syscall.Signal) error {
	run := p.current()
	if run == nil {
		return fmt.Errorf("signal %s with %v: it was never started", p.spec.name, sig)
	}
	// os.Process knows whether the pid was waited for, so that nobody else's is hit.
	if err := run.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s with %v: %w", p.spec.name, sig, err)
	}
	return nil
}

// end signals the process and waits. A paused one is woken, or it would not see the signal.
func (p *Process) end(sig syscall.Signal) error {
	run := p.current()
	if run == nil || !run.alive() {
		return nil
	}
	for _, s := range []syscall.Signal{sig, syscall.SIGCONT} {
		if err := run.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end %s: %w", p.spec.name, err)
		}
	}
	var late <-chan time.Time // never, for what nobody can refuse: on a busy machine it takes its time
	if sig != syscall.SIGKILL {
		late = time.After(stopTimeout)
	}
	select {
	case <-run.done:
		return nil
	case <-late:
	}
	_ = run.cmd.Process.Kill()
	<-run.done
	return fmt.Errorf("%s was still running %v after %v and was killed", p.spec.name, stopTimeout, sig)
}

// finish ends the process with its children and shows its log if the test failed.
func (p *Process) finish() {
	defer os.RemoveAll(filepath.Dir(p.logPath))
	if run := p.current(); run != nil {
		// The group id cannot be anyone else's before the leader was waited for.
		if run.alive() && p.spec.stop == syscall.SIGTERM {
			_ = syscall.Kill(-run.cmd.Process.Pid, syscall.SIGKILL)
		}
		_ = p.end(p.spec.stop)
	}
	if race := lineWith(p.Log(), "WARNING: DATA RACE"); race != "" {
		p.t.Errorf("%s has a data race", p.spec.name)
	}
	if p.t.Failed() {
		p.t.Logf("log of %s:\n%s", p.spec.name, p.logTail())
	}
}

// showSharedLog shows the end of what a server shared by tests printed, if this one fails.
func showSharedLog(t testing.TB, p *Process) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of the shared %s:\n%s", p.spec.name, p.logTail())
		}
	})
}
