//go:build !linux

package stream

import (
	"errors"
	"syscall"
)

// A poll is what parking rests on, and is Linux's alone.
type poll struct{}

var errNoPoll = errors.New("this system has no epoll")

func newPoll() (*poll, error)     { return nil, errNoPoll }
func (*poll) watch(*Parked) error { return errNoPoll }
func (*poll) forget(*Parked)      {}
func (*poll) run(func(uint64))    {}
func (*poll) close()              {}

type attempt struct{}

func (*attempt) init()                                      {}
func (*attempt) write(syscall.RawConn, []byte) (int, error) { return 0, errNoPoll }
