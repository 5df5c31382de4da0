// Package child starts programs that end with the worker: an MCP server, an
// agent that is a program.
package child

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Options of a child. Only Command is needed.
type Options struct {
	Command []string
	// Env is all that the child sees of an environment, besides PATH and HOME.
	Env   map[string]string
	Dir   string        // working directory; the worker's if empty
	Hint  time.Duration // from the end of its input, by which Stop begins, to SIGTERM
	Grace time.Duration // from SIGTERM to SIGKILL
	// Drain leaves Out open when the child has ended, for the caller to read to
	// its end and to close.
	Drain bool
	// Log gets what the child says on stderr, at Level, under the name What.
	Log   *slog.Logger
	Level slog.Level
	What  string
}

// A Process is a child that was started, leader of a process group of its own.
// The whole group ends with it, and it with the worker, even by kill -9.
type Process struct {
	In  *os.File // what it reads
	Out *os.File // what it answers

	cmd    *exec.Cmd
	opt    Options
	notes  *notes // what it says on stderr
	guard  *guard
	ending sync.Once
	done   chan struct{} // closed when it has ended and its group was killed
	err    error         // how it ended; read it after done
}

// pipes are both ends of the three standard streams of a child.
type pipes struct{ child, ours [3]*os.File }

// Start starts a child.
func Start(opt Options) (*Process, error) {
	ps, err := openPipes()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(opt.Command[0], opt.Command[1:]...)
	cmd.Env, cmd.Dir = environment(opt.Env), opt.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ps.child[0], ps.child[1], ps.child[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	p := &Process{cmd: cmd, opt: opt, In: ps.ours[0], Out: ps.ours[1], notes: newNotes(opt), done: make(chan struct{})}
	started := make(chan error)
	go p.live(started)
	err = <-started
	closeAll(ps.child[:])
	if err != nil {
		closeAll(ps.ours[:])
		return nil, err
	}
	go p.notes.read(ps.ours[2])
	return p, nil
}

// live starts the process and waits for it. It keeps its thread, because the
// kernel takes the end of the thread that forked for the end of the parent.
func (p *Process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	p.guard = startGuard(p.cmd.Process.Pid)
	started <- nil
	p.err = reap(p.cmd, func() {
		p.signal(syscall.SIGKILL)
		p.guard.dismiss()
	})
	close(p.done)
	p.In.Close()
	if !p.opt.Drain { // what left the group may still hold the pipe open
		time.AfterFunc(time.Second, func() { p.Out.Close() })
	}
}

// Stop ends the process: by the end of its input, else SIGTERM, else SIGKILL.
// It does not wait.
func (p *Process) Stop() {
	p.ending.Do(func() { go p.end() })
}

func (p *Process) end() {
	p.In.Close()
	if p.opt.Hint > 0 && p.wait(p.opt.Hint) {
		return
	}
	p.signal(syscall.SIGTERM)
	if p.wait(p.opt.Grace) {
		return
	}
	p.signal(syscall.SIGKILL)
}

func (p *Process) wait(d time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(d):
		return false
	}
}

// signal reaches the whole group. A paused member is woken to get it.
func (p *Process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGCONT)
}

// Done is closed when the process has ended and its group was killed.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process ended: nil for exit code 0. Read it after Done.
func (p *Process) Err() error { return p.err }

// LastWords is the last line that the process has said on stderr, cut. Ask for it
// after Done.
func (p *Process) LastWords() string { return p.notes.lastWords() }

// Cause adds to an error how the process ended, if it has, and what it last
// said.
func (p *Process) Cause(err error) error {
	if !p.wait(200 * time.Millisecond) {
		return err
	}
	reason := "it ended"
	if p.err != nil {
		reason += " with " + p.err.Error()
	}
	if last := p.notes.lastWords(); last != "" {
		reason += fmt.Sprintf(", saying %q", last)
	}
	if ended(err) {
		return errors.New(reason)
	}
	return fmt.Errorf("%w; %s", err, reason)
}

// ended reports whether err says no more than that the pipe has ended.
func ended(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed)
}

// environment is what a child gets to see: PATH, HOME, and what is configured.
func environment(configured map[string]string) []string {
	var env []string
	for _, key := range []string{"PATH", "HOME"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	for key, v := range configured {
		env = append(env, key+"="+v)
	}
	return env
}

func openPipes() (*pipes, error) {
	var ps pipes
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ps.child[:i])
			closeAll(ps.ours[:i])
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
		ps.child[i], ps.ours[i] = w, r
		if i == 0 {
			ps.child[i], ps.ours[i] = r, w
		}
	}
	return &ps, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
