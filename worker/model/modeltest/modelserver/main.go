// Command modelserver serves a script of package modeltest: it prints the URL
// that it listens on, and answers until it is interrupted.
//
//	modelserver [-listen 127.0.0.1:0] script.yaml
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/runlog-dev/runlog/worker/model/modeltest"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	if err := run(*listen, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "modelserver:", err)
		os.Exit(1)
	}
}

func run(listen, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	script, err := modeltest.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := modeltest.Serve(script, listen)
	defer s.Close()
	fmt.Println(s.URL)
	<-ctx.Done()
	return nil
}
