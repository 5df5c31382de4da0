package eventlog

import (
	"context"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"
)

// Frames yields every frame of a partition after a stream position, in the
// order of the stream, and then follows it until ctx ends. For the recorder,
// which reads for everyone; viewers use Live. It survives reconnects and leader
// changes. A frame that cannot be read comes as an error with its Pos, and the
// next one follows; any other error ends it.
func (l *Log) Frames(ctx context.Context, partition int, after uint64) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		cons, err := l.js.OrderedConsumer(ctx, streamName(partition), jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:   after + 1,
		})
		if err != nil {
			yield(Frame{}, unavailable(fmt.Errorf("follow partition %d: %w", partition, err)))
			return
		}
		msgs, err := cons.Messages(jetstream.PullMaxMessages(500))
		if err != nil {
			yield(Frame{}, unavailable(fmt.Errorf("follow partition %d: %w", partition, err)))
			return
		}
		defer msgs.Stop()
		stop := context.AfterFunc(ctx, msgs.Stop)
		defer stop()
		for {
			msg, err := msgs.Next()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(Frame{}, unavailable(fmt.Errorf("follow partition %d: %w", partition, err)))
				return
			}
			if f, err := storedFrame(msg); !yield(f, err) {
				return
			}
		}
	}
}

func storedFrame(msg jetstream.Msg) (Frame, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return Frame{}, fmt.Errorf("frame: %w", err)
	}
	unreadable := Frame{Pos: meta.Sequence.Stream} // so that a reader can pass it over
	t := tokens(msg.Subject())
	if len(t) != 4 {
		return unreadable, fmt.Errorf("frame %d has subject %q", meta.Sequence.Stream, msg.Subject())
	}
	k, err := parseKey(t[2], t[3])
	if err != nil {
		return unreadable, fmt.Errorf("frame %d: %w", meta.Sequence.Stream, err)
	}
	f, err := newFrame(k, meta.Sequence.Stream, msg.Headers(), msg.Data())
	f.Time = meta.Timestamp
	return f, err
}

// End is the last stream position of a partition.
func (l *Log) End(ctx context.Context, partition int) (uint64, error) {
	s, err := l.js.Stream(ctx, streamName(partition))
	if err != nil {
		return 0, unavailable(fmt.Errorf("end of partition %d: %w", partition, err))
	}
	return s.CachedInfo().State.LastSeq, nil
}
