package goagent_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/examples/goagent"
	"github.com/runlog-dev/runlog/worker"
	"github.com/runlog-dev/runlog/worker/agent"
)

// demoBank counts.
type demoBank struct{ charges int }

func (b *demoBank) Charge(_ context.Context, key string, cents int) (string, error) {
	b.charges++
	return fmt.Sprintf("charge %d, of %d cents", b.charges, cents), nil
}

// A worker with an agent in Go, on an event log of its own.
func Example() {
	if err := order("coffee"); err != nil {
		fmt.Println(err)
	}
	// Output:
	// user: coffee
	// assistant: One coffee, that is 5.00.
	// tool charge {"cents":500}: charge 1, of 500 cents
	// assistant: charge 1, of 500 cents. Thank you!
	// completed
}

func order(what string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "goagent")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := eventlog.StartEmbedded(dir+"/log", false)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	nc, err := server.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	log, err := eventlog.Open(ctx, nc, eventlog.Options{})
	if err != nil {
		return err
	}
	files, err := artifacts.Open(ctx, "dir:"+dir+"/files", artifacts.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }()

	clerk, err := goagent.Clerk(&demoBank{})
	if err != nil {
		return err
	}
	w := worker.New(log, files, map[string]*agent.Agent{"clerk": clerk}, worker.Options{})
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(working) }()
	defer func() { stop(); <-done }()

	// What an edge does with POST /v1/runs.
	key := eventlog.Key{Tenant: "default", Session: "ses_1"}
	err = log.Submit(ctx, key, event.Command{CommandID: "cmd_1", Kind: event.Invoke, SessionID: key.Session, RunID: "run_1", Agent: "clerk",
		Messages: []event.InputMessage{{MessageID: "msg_1", Role: event.RoleUser, Parts: []event.Part{event.TextPart(what)}}}, Time: event.At(time.Now())})
	if err != nil {
		return err
	}
	if err := log.Wake(ctx, key); err != nil {
		return err
	}
	return print(ctx, log, key)
}

// print waits for the run's end and prints the conversation.
func print(ctx context.Context, log *eventlog.Log, key eventlog.Key) error {
	for {
		s, _, err := log.Load(ctx, key)
		if err != nil {
			return err
		}
		run := s.Run("run_1")
		if run == nil || !run.Status.Terminal() {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		for _, m := range s.Messages {
			fmt.Printf("%s: %s\n", m.Role, strings.TrimSpace(m.Parts[0].Text))
			for _, c := range s.CallsOf(m.MessageID) {
				fmt.Printf("tool %s %s: %s\n", c.Name, c.Args, c.Content[0].Text)
			}
		}
		fmt.Println(run.Status)
		return nil
	}
}
