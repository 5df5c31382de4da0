package exec

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/remote"
)

// Input is what a program reads: one JSON object.
type Input struct {
	V         int    `json:"v"` // 1
	Agent     string `json:"agent"`
	Tenant    string `json:"tenant"`
	SessionID string `json:"session_id"`
	RunID     string `json:"run_id"`
	TraceID   string `json:"trace_id,omitempty"`
	// Leg counts how often the run went on after it had waited for somebody.
	Leg int `json:"leg"`
	// IdempotencyKey is that of the leg, the same however often it is started.
	IdempotencyKey string    `json:"idempotency_key"`
	Retry          int       `json:"retry"`             // 1, 2, … as this worker starts it
	Deadline       time.Time `json:"deadline,omitzero"` // it is stopped then
	Input          string    `json:"input"`             // what the user said last
	Messages       any       `json:"messages"`          // the conversation, as chat completions have it
	Tools          any       `json:"tools,omitempty"`   // that the client runs
	State          any       `json:"state,omitempty"`   // of the session
	Answers        []Answer  `json:"answers,omitempty"` // to what the last leg asked
	Checkpoint     any       `json:"checkpoint,omitempty"`
	Config         any       `json:"config,omitempty"` // of the agent's file
}

// An Answer is a decision about a call of the program's.
type Answer struct {
	CallID   string         `json:"call_id"`
	Decision event.Decision `json:"decision"` // approve | deny
	By       string         `json:"by,omitempty"`
	Reason   string         `json:"reason,omitempty"`
}

func inputOf(ctx context.Context, t remote.Task, config []byte) []byte {
	in := Input{V: 1, Agent: t.Agent, Tenant: t.Tenant, SessionID: t.SessionID(), RunID: t.RunID, TraceID: t.TraceID, Leg: t.Leg,
		IdempotencyKey: t.Key, Retry: t.Retry, Input: t.Session.Asked(t.RunID),
		Messages: t.Session.OpenAIView(event.View{RunID: t.RunID, Transcript: true}),
		State:    raw(t.Session.State), Checkpoint: raw(t.Checkpoint), Config: raw(config)}
	if t.Tools != nil {
		in.Tools = t.Tools
	}
	in.Deadline, _ = ctx.Deadline()
	for _, a := range t.Answers {
		if a.Approval {
			decision := event.Denied
			if a.Approved {
				decision = event.Approved
			}
			in.Answers = append(in.Answers, Answer{a.CallID, decision, a.By, a.Reason})
		}
	}
	return append(event.Encode(in), '\n')
}

// raw leaves out what is not there.
func raw(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return json.RawMessage(b)
}

// environment is what the program sees besides PATH and HOME.
func environment(ctx context.Context, t remote.Task, configured map[string]string) map[string]string {
	env := map[string]string{
		"RUNLOG_SESSION_ID": t.SessionID(), "RUNLOG_RUN_ID": t.RunID, "RUNLOG_TRACE_ID": t.TraceID, "RUNLOG_IDEMPOTENCY_KEY": t.Key,
	}
	if d, ok := ctx.Deadline(); ok {
		env["RUNLOG_DEADLINE"] = d.UTC().Format(time.RFC3339Nano)
	}
	maps.Copy(env, configured)
	return env
}
