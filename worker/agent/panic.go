package agent

import (
	"fmt"
	"runtime/debug"
)

// A Panic is a fault of the code that showed while a run was worked on. The run
// fails; other sessions of the process go on. Its text has the stack: it is for
// the process's log, never for clients.
type Panic struct {
	Thrown any
	Stack  []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Thrown, p.Stack) }

// Caught is deferred by what runs for one session: a panic becomes its error.
func Caught(err *error) {
	if thrown := recover(); thrown != nil {
		*err = &Panic{thrown, debug.Stack()}
	}
}
