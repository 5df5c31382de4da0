// Package model is the seam between the agent loop and a language model: a
// request built from the fold goes in, chunks come out as the model writes, and
// a Result says how it ended. Providers live in its subfolders.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// A Request is one model step.
type Request struct {
	// Session is the fold that the step continues. The model only reads it, and
	// only until its first chunk: after that the caller may go on folding.
	Session   *event.Session
	RunID     string
	System    string // rendered system prompt
	Tools     []ToolSpec
	MaxTokens int // of the answer; 0 leaves it to the provider
	Attempt   int // of this step: 1, 2, … as it is retried; 0 counts as 1
}

// A ToolSpec is what the model is told of a tool. Parameters is a JSON Schema
// object.
type ToolSpec struct {
	Name        string
	Description string
	Parameters  json.RawMessage
}

// Schema is Parameters, or the schema of an object without members.
func (t ToolSpec) Schema() json.RawMessage {
	if len(t.Parameters) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return t.Parameters
}

// ChunkKind says what a Chunk carries.
type ChunkKind int

// Chunk kinds. Calls are told apart by Index (0, 1, … in the order they begin);
// chunks of parallel calls may interleave.
const (
	Text         ChunkKind = iota // Text
	Reasoning                     // Text
	ReasoningEnd                  // Signature, may be empty: the block is over; one that never had a Text is a block too
	CallStart                     // Index, CallID (empty where the provider's is missing or taken: the loop makes one), Name
	CallArgs                      // Index, Text: a piece of the raw arguments; a call of a whole answer has at least one
)

// A Chunk is a piece of the answer as it arrives.
type Chunk struct {
	Kind      ChunkKind
	Text      string
	Index     int
	CallID    string
	Name      string
	Signature string
}

// A Result tells how the answer ended.
type Result struct {
	FinishReason event.FinishReason
	Usage        event.Usage
}

// A Model writes one answer. Stream calls emit for each chunk, in order, from
// one goroutine; an error from emit ends the stream and is returned as it is.
// It returns as soon as ctx ends, having closed the model's socket. An error of
// the model is an *Error. A stream that ends without a finish reason is an
// error (CodeModelTruncated), never a success.
type Model interface {
	Stream(ctx context.Context, req Request, emit func(Chunk) error) (Result, error)
}

// An Error is a model's failure with what the loop needs to go on.
type Error struct {
	Code       event.Code    // model_error, model_truncated, model_refused, model_timeout, unavailable
	Message    string        // for people; no secrets
	Retryable  bool          // the same request may succeed later
	RetryAfter time.Duration // what the server asked for, 0 if nothing
	Absent     bool          // the model cannot be had here, whatever is asked of it: another one may do
	Err        error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }
