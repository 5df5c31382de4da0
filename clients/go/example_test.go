package runlog_test

import (
	"context"
	"fmt"
	"log"
	"os"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

// Start a run and print its text as it comes, whatever happens to the
// connection or to one of the edges.
func ExampleClient_SubmitStream() {
	c := &runlog.Client{BaseURL: "https://edge-1.example", Fallbacks: []string{"https://edge-2.example"}, Key: os.Getenv("RUNLOG_KEY")}
	for e, err := range c.SubmitStream(context.Background(), runlog.Submission{Agent: "demo", Input: "What is the weather?"}) {
		if err != nil {
			log.Fatal(err)
		}
		if e.Type == event.TextDelta {
			var d event.TextDeltaData
			if err := e.Into(&d); err == nil {
				fmt.Print(d.Delta)
			}
		}
	}
}
