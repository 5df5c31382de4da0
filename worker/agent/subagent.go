package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// MaxDepth is how many runs may stand under one another.
const MaxDepth = 5

// SubAgent is a tool by which a model has another agent do something. The agent
// sees the input that it is given and nothing else of the conversation.
func SubAgent(name, description string, timeout time.Duration) tool.Tool {
	if timeout == 0 {
		timeout = tool.NoTimeout // its own limits bound it
	}
	if description == "" {
		description = "Runs the agent " + name + "."
	}
	return subAgent{name, tool.Spec{Name: tool.CleanName(name), Description: description, Agent: name, OnCrash: tool.Retry, Timeout: timeout,
		Parameters: json.RawMessage(`{"type":"object","properties":{"input":{"type":"string","description":"What to do, with all that is needed to know for it: nothing else of this conversation is seen."}},"required":["input"]}`)}}
}

type subAgent struct {
	name string
	spec tool.Spec
}

func (s subAgent) Spec() tool.Spec { return s.spec }

func (s subAgent) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		Input string `json:"input"`
	}
	if err := json.Unmarshal([]byte(c.Args), &args); err != nil || strings.TrimSpace(args.Input) == "" {
		return tool.Failed("give input, a text: what the agent is to do"), nil
	}
	return c.Agent(ctx, s.name, args.Input)
}

// sub runs another agent for the call, as a run of its own inside this one, and
// gives its answer. What a lost worker began goes on: the nth time that the call
// asks is the nth run under it, whatever it asks for then. Runs of one call follow
// one another, those of several calls go on side by side.
func (t *toolCall) sub(ctx context.Context, name, input string) (tool.Result, error) {
	t.asking.Lock()
	defer t.asking.Unlock()
	switch {
	case context.Cause(ctx) != nil:
		return tool.Result{}, context.Cause(ctx)
	case t.run.begun():
		return tool.Result{}, ErrDrained
	}
	id, problem, err := t.child(ctx, name, input)
	switch {
	case err != nil:
		return tool.Result{}, err
	case problem != "":
		return tool.Failed(problem), nil
	}
	t.children++
	if run := t.run.Journal.View().Run(id); !run.Status.Terminal() {
		if err := t.continueChild(ctx, run); err != nil {
			return tool.Result{}, err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return tool.Result{}, err
	}
	return answerOf(t.run.Journal.View(), id), nil
}

// child finds the run that the call asks for, or starts it.
func (t *toolCall) child(ctx context.Context, name, input string) (id, problem string, err error) {
	if run := childOf(t.run.Journal.View(), t.call, t.children); run != nil {
		return run.RunID, "", nil
	}
	switch a := t.run.Agents[name]; {
	case a == nil:
		return "", fmt.Sprintf("there is no agent %q here", name), nil
	case t.run.depth() >= MaxDepth:
		return "", fmt.Sprintf("agents may call one another %d deep, and that is reached: do it without", MaxDepth), nil
	}
	c := &Run{id: event.NewID("run"), traceID: t.run.traceID, internal: t.run.internal || !t.run.emit.subagents()}
	parts := []event.Part{event.TextPart(input)}
	if err := t.run.floor.take(ctx); err != nil { // its input is a message
		return "", "", err
	}
	defer t.run.floor.leave()
	for done := false; !done && err == nil; {
		view := t.run.Journal.View()
		done, err = t.run.Journal.AppendIf(view.Seq,
			c.event(event.RunStarted, event.RunStartedData{Agent: name, Attempt: 1, ParentRunID: t.run.id, ParentCallID: t.call.CallID}),
			c.event(event.MessageCompleted, event.MessageCompletedData{MessageID: event.NewID("msg"), Role: event.RoleUser,
				Index: len(view.Messages), Parts: parts, SHA256: event.TextHash(parts)}),
			c.event(event.RunStatus, event.RunStatusData{Status: event.Running, Previous: event.Pending}))
	}
	return c.id, "", err
}

// childOf is the nth run under a call, or nil.
func childOf(view *event.Session, c *event.ToolCall, n int) *event.Run {
	for _, run := range view.Runs {
		if run.ParentRunID == c.RunID && run.ParentCallID == c.CallID {
			if n == 0 {
				return run
			}
			n--
		}
	}
	return nil
}

func (r *Run) depth() int {
	n := 1
	for p := r.parent; p != nil; p = p.parent {
		n++
	}
	return n
}

func (t *toolCall) continueChild(ctx context.Context, run *event.Run) error {
	a := t.run.Agents[run.Agent]
	if a == nil { // it was there when the run began
		f := &Failure{Code: event.CodeNotFound, Message: fmt.Sprintf("this worker has no agent %q", run.Agent)}
		return Fail(ctx, run.RunID, f, t.run.Deps)
	}
	r := prepare(a, run, t.run.signals, t.run.Deps)
	r.parent, r.floor = t.run, t.run.floor
	return r.carryOn(ctx)
}

// answerOf is what the caller of an agent gets.
func answerOf(view *event.Session, runID string) tool.Result {
	run := view.Run(runID)
	switch {
	case run.Status == event.Failed:
		return tool.Failed(fmt.Sprintf("the agent %s failed (%s): %s", run.Agent, run.Error.Code, run.Error.Message))
	case run.Status != event.Completed:
		return tool.Failed("the agent " + run.Agent + " was cancelled")
	}
	var texts []string
	if run.Output != nil {
		if m := view.MessageByID(run.Output.MessageID); m != nil {
			for _, p := range m.Parts {
				if p.Type == event.PartText && p.Text != "" {
					texts = append(texts, p.Text)
				}
			}
		}
	}
	return tool.Result{Content: []event.Part{event.TextPart(strings.Join(texts, "\n\n"))}}
}

// closeChildren ends the runs that a call has under it, before it has its result.
func (r *Run) closeChildren(view *event.Session, callID, why string) (out []event.Event) {
	for _, run := range view.Runs {
		if run.ParentRunID != r.id || run.ParentCallID != callID || run.Status.Terminal() {
			continue
		}
		c := about(run)
		usage := run.Usage
		out = append(out, c.closers(view, why)...)
		if why == "cancelled" {
			out = append(out, c.event(event.RunCancelled, event.RunCancelledData{By: r.id, Reason: "the run that it worked for was cancelled", Usage: &usage}))
			continue
		}
		out = append(out, c.event(event.RunFailed, event.RunFailedData{Code: event.CodeInterrupted, Message: "the call that it worked for ended: " + why, Usage: &usage}))
	}
	return out
}
