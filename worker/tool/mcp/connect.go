package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/runlog-dev/runlog/worker/child"
)

// handshake is the protocol version that is offered first. It has all that is
// needed here (progress, cancellation), and every server in use knows it or
// answers with an older one; the SDK's newest begins with a request that older
// servers have never heard of.
const handshake = "2025-11-25"

// open connects, at worst twice: a server that refuses the handshake is asked
// for the newest version that the SDK speaks.
func (s *Server) open(ctx context.Context) (*link, error) {
	if err := s.opt.Check(); err != nil {
		return nil, err
	}
	ctx, trip := withDelivery(ctx)
	l, err := s.openWith(ctx, handshake)
	if err != nil && (trip.refused.Load() != 0 || isAnswer(err)) {
		return s.openWith(ctx, "")
	}
	return l, err
}

// isAnswer reports whether err is what the server answered. The SDK has the same
// type for a request that it could not deliver.
func isAnswer(err error) bool {
	const rejected = -32005
	var answer *jsonrpc.Error
	return errors.As(err, &answer) && answer.Code != rejected
}

func (s *Server) openWith(ctx context.Context, version string) (*link, error) {
	l := &link{server: s, done: make(chan struct{}), listing: make(chan struct{}, 1)}
	l.stale.Store(true)
	client := sdk.NewClient(&sdk.Implementation{Name: "runlog", Version: "1"}, &sdk.ClientOptions{
		Logger:                 slog.New(slog.DiscardHandler),
		Capabilities:           &sdk.ClientCapabilities{}, // neither roots nor sampling nor elicitation
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { l.stale.Store(true) },
	})
	transport, err := s.transport(l)
	if err != nil {
		return nil, err
	}
	l.session, err = client.Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, l.refused(ctx, err)
	}
	s.wg.Go(l.watch)
	return l, nil
}

// refused cleans up after a handshake that failed and says why it did.
func (l *link) refused(ctx context.Context, err error) error {
	err = plain(err)
	if ctx.Err() != nil {
		err = fmt.Errorf("no handshake within %s", l.server.opt.ConnectTimeout)
	}
	if l.proc == nil {
		return fmt.Errorf("connect: %w", err)
	}
	select { // one that dies by itself has a reason to tell
	case <-l.proc.Done():
	case <-time.After(200 * time.Millisecond):
	}
	l.proc.Stop()
	<-l.proc.Done()
	return fmt.Errorf("start %q: %w", l.server.opt.Command[0], l.proc.Cause(err))
}

func (s *Server) transport(l *link) (sdk.Transport, error) {
	wire := &wire{limit: s.opt.MaxFrame, progress: s.reports.deliver, log: s.log}
	if s.opt.URL != "" {
		return s.httpTransport(wire), nil
	}
	proc, err := child.Start(s.opt.child())
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", s.opt.Command[0], err)
	}
	l.proc = proc
	return &sdk.IOTransport{
		Reader:        closing{wire.lines(proc.Out, wire.stdio), proc.Stop},
		Writer:        stdin{proc},
		MaxLineLength: -1, // wire has the limit
	}, nil
}

// closing makes stop the Close of a reader.
type closing struct {
	io.Reader
	stop func()
}

func (c closing) Close() error {
	c.stop()
	return nil
}

// stdin is the server's end of the pipe. A frame of which nothing was written
// was not sent, and may be sent to another process.
type stdin struct{ proc *child.Process }

var errUnsent = errors.New("nothing was sent")

func (w stdin) Write(p []byte) (int, error) {
	n, err := w.proc.In.Write(p)
	if err != nil && n == 0 {
		err = fmt.Errorf("%w: %w", errUnsent, err)
	}
	return n, err
}

func (w stdin) Close() error {
	w.proc.Stop()
	return nil
}

// child is how the server is started: it may end by itself when it is told
// nothing more, before it is told to.
func (o Options) child() child.Options {
	return child.Options{Command: o.Command, Env: o.Env, Dir: o.Dir, Hint: 300 * time.Millisecond, Grace: o.Grace,
		Log: o.Log, Level: slog.LevelDebug, What: "mcp server stderr"}
}
