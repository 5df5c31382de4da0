// Package goagent shows agents and tools that are written in Go: a clerk that
// takes orders. Its decisions are Go code, which stands in for a model; its tool
// charges a card, and must not do that twice, whoever dies meanwhile.
//
// A worker with these agents is a program of a few lines:
//
//	nc, err := nats.Connect(os.Getenv("RUNLOG_NATS_URL"))
//	…
//	log, err := eventlog.Open(ctx, nc, eventlog.Options{})
//	…
//	files, err := artifacts.Open(ctx, os.Getenv("RUNLOG_ARTIFACTS_URL"), artifacts.Options{})
//	…
//	clerk, err := goagent.Clerk(bank)
//	…
//	w := worker.New(log, files, map[string]*agent.Agent{"clerk": clerk}, worker.Options{})
//	return w.Run(ctx)
//
// Agents from files, as [github.com/runlog-dev/runlog/worker/agents] reads them,
// go into the same map; they may call the clerk, and the clerk's tools them.
package goagent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A Bank takes money. The key is the same however often one charge is tried.
type Bank interface {
	Charge(ctx context.Context, key string, cents int) (receipt string, err error)
}

// Charge is a tool that charges a card. It may be run again after a crash: the
// charge itself is journaled, so that it is made once.
func Charge(bank Bank) tool.Tool {
	spec := tool.Spec{
		Name: "charge", Description: "Charges the customer's card.", OnCrash: tool.Retry,
		Parameters: json.RawMessage(`{"type":"object","properties":{"cents":{"type":"integer"}},"required":["cents"]}`),
	}
	return tool.New(spec, func(ctx context.Context, c tool.Call) (tool.Result, error) {
		args, err := tool.Args[struct{ Cents int }](c)
		if err != nil {
			return tool.Result{}, err
		}
		receipt, err := tool.Once(ctx, c, "charge", func(ctx context.Context) (string, error) {
			return bank.Charge(ctx, c.IdempotencyKey, args.Cents)
		})
		if err != nil {
			return tool.Result{}, err
		}
		return tool.Text(receipt), nil
	})
}

// Clerk is an agent whose steps are Go code. It depends on the step alone: after
// a crash another worker decides the same again.
func Clerk(bank Bank) (*agent.Agent, error) {
	d := agent.Definition{Name: "clerk", Description: "Takes orders.", Limits: agent.Limits{Steps: 5}}
	return agent.Go(d, func(_ context.Context, s *agent.Step) error {
		paid := s.Result("charge")
		switch {
		case paid == nil:
			if err := s.Say("One %s, that is 5.00. ", s.Input); err != nil {
				return err
			}
			return s.Call("charge", map[string]int{"cents": 500})
		case paid.Status == event.Failed:
			return s.Say("I could not charge your card: %s", paid.Message)
		}
		return s.Say("%s. Thank you!", fmt.Sprint(paid.Content[0].Text))
	}, Charge(bank))
}
