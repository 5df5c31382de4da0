// Command runlog is the whole platform in one binary: the server's processes,
// what sets them up, and the commands of its users.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/runlog-dev/runlog/cmd/runlog/terminal"
	"github.com/runlog-dev/runlog/examples/demotools"
)

// A command is one entry of the server's half of the command line.
type command struct {
	name, args, help string
	run              func(ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"dev", "[--data DIR] [--listen ADDR]", "everything in one process, nothing to install", dev},
		{"edge", "", "serve clients over HTTP", edgeCommand},
		{"worker", "", "run agents", workerCommand},
		{"migrate", "", "bring the catalog's schema up to date", migrateCommand},
		{"reindex", "", "rebuild the catalog from the log", reindexCommand},
		{"restored", "", "after JetStream was restored from a backup, before anything runs", restoredCommand},
		{"keys", "create|list|revoke", "API keys of a tenant", keysCommand},
		{"fsck", "[--session TENANT/ID] [--json]", "check that logs are what they have to be", fsckCommand},
	}
}

func main() { os.Exit(execute(os.Args[1:])) }

func execute(args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage()
		return 0
	}
	// Before NotifyContext: these commands have their own idea of Ctrl-C.
	if exit, handled := terminal.Run(context.Background(), args, os.Stdin, os.Stdout, os.Stderr); handled {
		return exit
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := dispatch(ctx, args)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp), ctx.Err() != nil && errors.Is(err, context.Canceled):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "runlog:", err)
		return 2
	}
	fmt.Fprintln(os.Stderr, "runlog:", err)
	return 1
}

var errUsage = errors.New("usage")

func dispatch(ctx context.Context, args []string) error {
	if args[0] == "demo-tools" { // the demo agent's MCP server, started by workers
		return demotools.Main(ctx, os.Stdin, os.Stdout)
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:])
		}
	}
	return fmt.Errorf("%w: there is no command %q; see runlog help", errUsage, args[0])
}

func usage() {
	fmt.Println("runlog runs LLM agents on a durable event log.\n\nServer:")
	for _, c := range commands() {
		fmt.Printf("  runlog %-8s %-32s %s\n", c.name, c.args, c.help)
	}
	fmt.Println("\nTerminal:")
	for _, c := range terminal.Commands {
		fmt.Printf("  runlog %-8s %s\n  %-15s %s\n", c.Name, c.Args, "", c.Help)
	}
	fmt.Println("\nrunlog COMMAND -h lists the flags of a command and the RUNLOG_* variables behind them.")
}
