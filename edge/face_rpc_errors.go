package edge

import (
	"net/http"

	"github.com/runlog-dev/runlog/event"
)

// Codes of JSON-RPC 2.0, and runlog's own among those that it leaves to servers.
const (
	rpcParse    = -32700
	rpcInvalid  = -32600
	rpcMethod   = -32601
	rpcParams   = -32602
	rpcInternal = -32603
	rpcFailed   = -32000 // the run failed
	rpcConflict = -32009
)

// rpcNoMethod marks the problem that becomes rpcMethod.
const rpcNoMethod event.Code = "unknown_method"

// rpcCodes is the table from a problem's status to a code.
var rpcCodes = map[int]int{
	http.StatusBadRequest:            rpcParams,
	http.StatusForbidden:             -32003,
	http.StatusNotFound:              -32004,
	http.StatusConflict:              rpcConflict,
	http.StatusGone:                  -32010,
	http.StatusRequestEntityTooLarge: -32013,
	http.StatusUnprocessableEntity:   -32022,
	http.StatusTooManyRequests:       -32029,
	http.StatusServiceUnavailable:    -32053,
	http.StatusInternalServerError:   rpcInternal,
}

// An rpcError is the error of an answer.
type rpcError struct {
	Code    int      `json:"code"`
	Message string   `json:"message"`
	Data    *rpcData `json:"data,omitempty"`
}

// rpcData says more for programs.
type rpcData struct {
	Code         event.Code `json:"code"`
	Param        string     `json:"param,omitempty"`
	Known        []string   `json:"known,omitempty"`
	Head         *event.Seq `json:"head,omitempty"`
	RetryAfterMS int64      `json:"retry_after_ms,omitempty"`
	Retryable    bool       `json:"retryable,omitempty"`
	Attach       *rpcAttach `json:"attach,omitempty"` // the run to attach to
	Run          *runState  `json:"run,omitempty"`    // the one that failed

	// Of MCP: the protocol versions.
	Supported []string `json:"supported,omitempty"`
	Requested string   `json:"requested,omitempty"`
}

// An rpcAttach names a run for agent.attach.
type rpcAttach struct {
	RunID     string `json:"run_id"`
	SessionID string `json:"session_id"`
	TraceID   string `json:"trace_id"`
}

func rpcErrorOf(p *Problem) *rpcError {
	code, ok := rpcCodes[p.Status]
	switch {
	case p.Code == rpcNoMethod:
		return &rpcError{Code: rpcMethod, Message: p.Detail}
	case !ok:
		code = rpcFailed
	}
	return &rpcError{code, p.Detail, &rpcData{Code: p.Code, Param: p.Param, Known: p.Known, Head: p.Head,
		RetryAfterMS: p.retryAfter.Milliseconds(), Attach: p.attach}}
}
