// Package runlog is a client of runlog's HTTP contract: it starts runs, follows
// their events across cut connections and dead edges, and fetches what they made.
//
//	c := &runlog.Client{BaseURL: "http://127.0.0.1:8080"}
//	for e, err := range c.SubmitStream(ctx, runlog.Submission{Agent: "demo", Input: "Hello"}) {
//		if err != nil {
//			return err
//		}
//		if e.Type == event.TextDelta {
//			…
//		}
//	}
//
// A stream yields every event its viewer may see once, in order, however often
// the connection is lost: after a cut the client goes to the next edge and sends
// the id it saw last. An error ends the stream; it means that the edges gave an
// answer that trying again cannot change (*Error), or that there was none for
// Client.Patience.
package runlog
