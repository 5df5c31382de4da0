package mcp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A process is a server started as a child, leader of a process group of its
// own. The whole group ends with it, and it with the worker, even by kill -9.
type process struct {
	cmd    *exec.Cmd
	in     *os.File // what it reads
	out    *os.File // what it answers
	notes  *notes   // what it says on stderr
	grace  time.Duration
	guard  *guard
	ending sync.Once
	done   chan struct{} // closed when it has ended and its group was killed
	err    error         // how it ended; read it after done
}

// pipes are both ends of the three standard streams of a child.
type pipes struct{ child, ours [3]*os.File }

func startProcess(opt Options) (*process, error) {
	ps, err := openPipes()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(opt.Command[0], opt.Command[1:]...)
	cmd.Env, cmd.Dir = environment(opt.Env), opt.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ps.child[0], ps.child[1], ps.child[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	p := &process{
		cmd: cmd, in: ps.ours[0], out: ps.ours[1],
		notes: newNotes(opt.Log), grace: opt.Grace, done: make(chan struct{}),
	}
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
func (p *process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	p.guard = startGuard(p.cmd.Process.Pid)
	started <- nil
	// As long as the leader was not reaped, nobody else can have its group id.
	awaitExit(p.cmd.Process.Pid)
	p.signal(syscall.SIGKILL)
	p.guard.dismiss()
	p.err = p.cmd.Wait()
	close(p.done)
	p.in.Close()
	// What left the group may still hold the pipe open.
	time.AfterFunc(time.Second, func() { p.out.Close() })
}

// stop ends the process: by the end of its input, else SIGTERM, else SIGKILL.
// It does not wait.
func (p *process) stop() {
	p.ending.Do(func() { go p.end() })
}

func (p *process) end() {
	p.in.Close()
	if p.wait(300 * time.Millisecond) {
		return
	}
	p.signal(syscall.SIGTERM)
	if p.wait(p.grace) {
		return
	}
	p.signal(syscall.SIGKILL)
}

func (p *process) wait(d time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(d):
		return false
	}
}

// signal reaches the whole group. A paused member is woken to get it.
func (p *process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGCONT)
}

// cause adds to an error how the process ended, if it has, and what it last
// said.
func (p *process) cause(err error) error {
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
