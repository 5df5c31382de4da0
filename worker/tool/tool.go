// Package tool is the seam between the agent loop and what a model may call:
// MCP servers, built-in tools, other agents, and tools written in Go.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// OnCrash says what happens to a call whose worker died before its result.
type OnCrash string

// Crash policies. Retry runs it again with the same idempotency key; Ask has
// somebody say whether to do that, or what the result is; Fail closes it with
// outcome unknown and tells the model so.
const (
	Retry OnCrash = "retry"
	Ask   OnCrash = "ask"
	Fail  OnCrash = "fail"
)

// A Spec describes a tool to the model and to the loop.
type Spec struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of the arguments, an object
	OnCrash     OnCrash
	Timeout     time.Duration // of one attempt; 0 means DefaultTimeout
	// Retries of a call that did not reach the tool, and of any that got no
	// answer if OnCrash is Retry; 0 means DefaultRetries.
	Retries int
	// Agent is the name of the agent that the tool runs, if it does.
	Agent string
	// Executor is who runs it; empty: the worker.
	Executor event.Executor
	// NeedsApproval says of which calls somebody must approve; nil: of none.
	NeedsApproval func(args string) bool
	// Wait is how long an approval, or the client's result, may take; 0 means
	// DefaultWait.
	Wait time.Duration
}

// DefaultTimeout bounds a call whose tool says nothing.
const DefaultTimeout = 60 * time.Second

// DefaultRetries is for tools that say nothing, NoRetries for those that are
// called once.
const (
	DefaultRetries = 2
	NoRetries      = -1
)

// MaxRetries is how often a call may be repeated.
func (s Spec) MaxRetries() int {
	if s.Retries == 0 {
		return DefaultRetries
	}
	return max(s.Retries, 0)
}

// MaxTime bounds an attempt; it is NoTimeout if nothing does.
func (s Spec) MaxTime() time.Duration {
	if s.Timeout == 0 {
		return DefaultTimeout
	}
	return s.Timeout
}

// NoTimeout is for tools whose calls are bounded in another way.
const NoTimeout time.Duration = -1

// A Call is one invocation.
type Call struct {
	Tenant         string
	SessionID      string
	RunID          string
	CallID         string
	Args           string // raw text of the model, valid JSON
	Attempt        int
	IdempotencyKey string // the same in every attempt
	// Session is the fold at the time of the call, read only.
	Session *event.Session
	// Progress reports how far the call is; it never blocks for long and may be
	// called from any goroutine until Call returns (later reports are dropped).
	Progress func(event.Progress)
	// Create opens a new artifact of the session. What is written is reported
	// as artifact.progress while it grows.
	Create func(ctx context.Context, name, mediaType string) (ArtifactWriter, error)
	// Open reads an artifact of the tenant.
	Open func(ctx context.Context, artifactID string) (io.ReadSeekCloser, event.Part, error)
	// Once is what the function Once of this package uses.
	Once func(ctx context.Context, name string, step func(context.Context) (json.RawMessage, error)) (json.RawMessage, error)
	// Agent runs another agent of this worker inside of the call, as a run of its
	// own with its own limits, and returns its answer. The tool returns an error
	// of it as it is: the run may go on elsewhere, and the call with it. After a
	// crash the nth use gives the nth run, which goes on from its log; so a tool
	// that uses it is of policy Retry and asks for the same again.
	Agent func(ctx context.Context, name, input string) (Result, error)
}

// An ArtifactWriter takes the bytes of one artifact. Commit makes it visible
// and returns its file part (image and audio by media type); Abort drops it.
type ArtifactWriter interface {
	io.Writer
	Commit(ctx context.Context) (event.Part, error)
	Abort()
}

// A Result is what the model and the clients get. A failure that the model
// should read is a Result with Failed set, not an error. Content may hold texts
// of any size: the loop cuts what is over the agent's limit and keeps the whole
// in an artifact.
type Result struct {
	Content    []event.Part
	Structured json.RawMessage
	Failed     bool
}

// Failed is a result that tells the model what went wrong.
func Failed(message string) Result {
	return Result{Failed: true, Content: []event.Part{event.TextPart(message)}}
}

// A Tool can be called. Call returns soon after ctx ends, having told the other
// side to stop; its error is one of the sentinels below, ctx's, or unexpected.
// It is safe for concurrent use.
type Tool interface {
	Spec() Spec
	Call(ctx context.Context, call Call) (Result, error)
}

// A Source offers tools that may come and go, as an MCP server does.
type Source interface {
	// Tools lists what is there now; an error says why the source is missing.
	// It waits at most until ctx ends.
	Tools(ctx context.Context) ([]Tool, error)
	Close() error
}

// Sentinels that callers act on.
var (
	// ErrUnavailable: the tool's server is missing or died before the answer.
	ErrUnavailable = errors.New("tool unavailable")
	// ErrEffectUnknown comes with ErrUnavailable or with an exceeded deadline
	// if the request had been sent: the tool may have had its effect.
	ErrEffectUnknown = errors.New("the tool may have had its effect")
)
