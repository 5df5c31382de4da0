package edge

import (
	"encoding/json"
	"net/http"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Codes that A2A adds to those of JSON-RPC.
const (
	a2aNoTask        = -32001
	a2aNotCancelable = -32002
	a2aPush          = -32003
	a2aNotOffered    = -32004
	a2aBadContent    = -32005
	a2aBadVersion    = -32009
)

// An a2aError is what A2A calls one: its reason goes into an ErrorInfo.
type a2aError struct {
	code   int
	reason string
	text   string
	param  string
	is     event.Code
}

func (e *a2aError) Error() string { return e.text }

// MarshalJSON writes the error member of an answer.
func (e *a2aError) MarshalJSON() ([]byte, error) {
	o := dialect.NewObject(256).Value("code", e.code).Text("message", e.text)
	if e.reason != "" {
		type info struct {
			Type     string            `json:"@type"`
			Reason   string            `json:"reason"`
			Domain   string            `json:"domain"`
			Metadata map[string]string `json:"metadata,omitempty"`
		}
		more := map[string]string{}
		for name, value := range map[string]string{"code": string(e.is), "param": e.param} {
			if value != "" {
				more[name] = value
			}
		}
		o = o.Value("data", []info{{"type.googleapis.com/google.rpc.ErrorInfo", e.reason, "a2a-protocol.org", more}})
	}
	return json.RawMessage(o.Close()), nil
}

func a2aUnsupported(text string) *a2aError {
	return &a2aError{code: a2aNotOffered, reason: "UNSUPPORTED_OPERATION", text: text}
}

var a2aNoPush = &a2aError{code: a2aPush, reason: "PUSH_NOTIFICATION_NOT_SUPPORTED",
	text: "push notifications are not built: follow the task with SubscribeToTask, or ask for it with GetTask"}

func a2aTaskNotFound(id string) *a2aError {
	return &a2aError{code: a2aNoTask, reason: "TASK_NOT_FOUND", text: "there is no task " + string(event.Encode(id)), is: event.CodeNotFound}
}

// a2aErrorOf is a problem in A2A's words; nil for what HTTP has to say.
func a2aErrorOf(p *Problem) *a2aError {
	e := &a2aError{code: rpcParams, reason: "INVALID_PARAMS", text: p.Detail, param: p.Param, is: p.Code}
	switch p.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
	case http.StatusConflict, http.StatusGone:
		e.code, e.reason = a2aNotOffered, "UNSUPPORTED_OPERATION"
	default:
		return nil
	}
	if p.Code == event.CodeMismatch {
		e.text = "this messageId was used before, with another message: repeat a message byte for byte, or take a new id"
	}
	return e
}
