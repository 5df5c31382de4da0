package stream

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// A poll notices clients that leave: one epoll instance has the sockets of all
// parked viewers, and is itself watched by the runtime, so that it holds no thread.
type poll struct {
	fd    int
	file  *os.File
	raw   syscall.RawConn
	ready [128]syscall.EpollEvent
}

func newPoll() (*poll, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll instance: %w", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("make an epoll instance: %w", err), syscall.Close(fd))
	}
	p := &poll{fd: fd, file: os.NewFile(uintptr(fd), "epoll")}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("make an epoll instance: %w", err), p.file.Close())
	}
	return p, nil
}

// watch tells once when a viewer's client leaves, or has left, until the connection
// is closed. What it sends is not looked at.
func (p *poll) watch(v *Parked) error {
	ev := syscall.EpollEvent{Events: syscall.EPOLLRDHUP | syscall.EPOLLONESHOT, Fd: int32(uint32(v.id)), Pad: int32(uint32(v.id >> 32))}
	var added error
	err := v.raw.Control(func(fd uintptr) { added = syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, int(fd), &ev) })
	return errors.Join(err, added)
}

// forget takes back what watch began.
func (p *poll) forget(v *Parked) {
	_ = v.raw.Control(func(fd uintptr) { _ = syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_DEL, int(fd), &syscall.EpollEvent{}) })
}

// run calls left with the ids of viewers until the poll is closed.
func (p *poll) run(left func(id uint64)) {
	for {
		n := 0
		err := p.raw.Read(func(fd uintptr) bool {
			n, _ = syscall.EpollWait(int(fd), p.ready[:], 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for _, ev := range p.ready[:n] {
			left(uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32)
		}
	}
}

func (p *poll) close() { _ = p.file.Close() }

// An attempt writes to a socket, once. It is used by one goroutine.
type attempt struct {
	do  func(fd uintptr) bool
	b   []byte
	n   int
	err error
}

func (a *attempt) init() {
	a.do = func(fd uintptr) bool {
		a.n, a.err = syscall.Write(int(fd), a.b)
		return true
	}
}

// write returns how much the socket took, which is nothing if it is full.
func (a *attempt) write(raw syscall.RawConn, b []byte) (int, error) {
	a.b = b
	err := raw.Write(a.do)
	a.b = nil
	switch {
	case err != nil:
		return 0, fmt.Errorf("write to the client: %w", err)
	case errors.Is(a.err, syscall.EAGAIN), errors.Is(a.err, syscall.EINTR):
		return 0, nil
	case a.err != nil:
		return 0, fmt.Errorf("write to the client: %w", a.err)
	}
	return a.n, nil
}
