package main

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A frame as the log holds it.
type frame struct {
	at     time.Time // when the server stored it
	bytes  int       // of its body
	stored int       // with its headers and subject
	events []line
}

// A line is one event of a frame.
type line struct {
	Type  string
	RunID string `json:"run_id"`
	Data  json.RawMessage
	bytes int
}

// frames reads the log of a session, or of all if session is empty.
func (s *site) frames(session string) ([]frame, error) {
	nc, err := nats.Connect("nats://" + s.server.addr)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	filter := "log.0.default.>"
	if session != "" {
		filter = "log.0.default." + session
	}
	cons, err := js.OrderedConsumer(ctx, "LOG_0", jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	if err != nil {
		return nil, err
	}
	msgs, err := cons.Messages()
	if err != nil {
		return nil, err
	}
	defer msgs.Stop()
	var list []frame
	for {
		msg, err := msgs.Next()
		if err != nil {
			return nil, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		list = append(list, frameOf(msg, meta.Timestamp))
		if meta.NumPending == 0 {
			return list, nil
		}
	}
}

func frameOf(msg jetstream.Msg, at time.Time) frame {
	f := frame{at: at, bytes: len(msg.Data()), stored: len(msg.Data()) + len(msg.Subject())}
	for k, values := range msg.Headers() {
		for _, v := range values {
			f.stored += len(k) + len(v) + 4
		}
	}
	for text := range bytes.Lines(msg.Data()) {
		l := line{bytes: len(text)}
		if json.Unmarshal(text, &l) == nil {
			f.events = append(f.events, l)
		}
	}
	return f
}
