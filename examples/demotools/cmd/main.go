// Command cmd serves the demo tools over its standard input and output.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/runlog-dev/runlog/examples/demotools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demotools.Main(ctx, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo-tools:", err)
		os.Exit(1)
	}
}
