package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"github.com/runlog-dev/runlog/event"
)

// A Rule says which calls of a tool need somebody's approval.
type Rule struct {
	always  bool
	program *vm.Program
}

// ParseRule reads "required", or an expression over the arguments such as
// args.amount > 100 or args.path startsWith "/etc". An argument that is missing
// is nil.
func ParseRule(text string) (Rule, error) {
	if text == "required" {
		return Rule{always: true}, nil
	}
	program, err := expr.Compile(text, expr.AsBool(), expr.Env(map[string]any{"args": map[string]any{}}), expr.AllowUndefinedVariables())
	if err != nil {
		return Rule{}, fmt.Errorf("%q is neither never, required nor an expression over args, such as args.amount > 100: %w", text, err)
	}
	return Rule{program: program}, nil
}

// Applies reports whether a call with these arguments needs approval. A rule
// that cannot be evaluated asks for it: nothing runs unasked by mistake.
func (r Rule) Applies(args string) bool {
	if r.always || r.program == nil {
		return r.always
	}
	var values map[string]any
	dec := json.NewDecoder(bytes.NewReader([]byte(args)))
	if dec.Decode(&values) != nil {
		return true
	}
	out, err := expr.Run(r.program, map[string]any{"args": values})
	yes, ok := out.(bool)
	return err != nil || !ok || yes
}

// DefaultWait is how long a run waits for an approval or a client's result.
const DefaultWait = 24 * time.Hour

// Gate puts a rule before every tool of a source; wait is how long an approval
// may take.
func Gate(s Source, rule Rule, wait time.Duration) Source { return gate{s, rule, wait} }

type gate struct {
	Source
	rule Rule
	wait time.Duration
}

func (g gate) Tools(ctx context.Context) ([]Tool, error) {
	list, err := g.Source.Tools(ctx)
	out := make([]Tool, len(list))
	for i, t := range list {
		out[i] = gated{t, g}
	}
	return out, err
}

type gated struct {
	Tool
	gate gate
}

func (g gated) Spec() Spec {
	spec := g.Tool.Spec()
	spec.NeedsApproval, spec.Wait = g.gate.rule.Applies, g.gate.wait
	return spec
}

// Namespace passes on where the tool comes from.
func (g gated) Namespace() string {
	if n, ok := g.Tool.(Namespaced); ok {
		return n.Namespace()
	}
	return ""
}

// A Client tool is run by the client: the model may call it, the worker waits
// for the result.
type Client struct {
	event.ClientTool
	Wait time.Duration // for the result; 0 means DefaultWait
}

// Spec describes it to the model.
func (c Client) Spec() Spec {
	return Spec{Name: c.Name, Description: c.Description, Parameters: c.Parameters, Executor: event.ByClient, Wait: c.Wait}
}

// Call is a mistake: no worker runs this tool.
func (c Client) Call(context.Context, Call) (Result, error) {
	return Result{}, fmt.Errorf("tool %s is run by the client", c.Name)
}

// Fixed is a source of the same tools for ever.
type Fixed []Tool

// Tools lists them.
func (f Fixed) Tools(context.Context) ([]Tool, error) { return f, nil }

// Close does nothing.
func (f Fixed) Close() error { return nil }
