package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// stored is a message as the leader gives it.
type stored struct {
	Subject string    `json:"subject"`
	Pos     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

func (m stored) header() (nats.Header, error) {
	if len(m.Header) == 0 {
		return nats.Header{}, nil
	}
	return nats.DecodeHeadersMsg(m.Header)
}

// frame reads the message as a frame.
func (m stored) frame(k Key) (Frame, error) {
	h, err := m.header()
	if err != nil {
		return Frame{}, err
	}
	f, err := newFrame(k, m.Pos, h, m.Data)
	f.Time = m.Time
	return f, err
}

// A getRequest asks for one message: that at Seq, or the first one from Seq on of the
// subject NextBy, or the last one of the subject LastBy.
type getRequest struct {
	Seq    uint64 `json:"seq,omitempty"`
	LastBy string `json:"last_by_subj,omitempty"`
	NextBy string `json:"next_by_subj,omitempty"`
}

// leaderGet reads one message from the stream's leader: the only read that can
// decide who owns a session or that something is not there. ErrNotFound if
// there is none.
func (l *Log) leaderGet(ctx context.Context, stream string, req getRequest) (stored, error) {
	msg, err := l.askLeader(ctx, "$JS.API.STREAM.MSG.GET."+stream, event.Encode(req))
	if err != nil {
		return stored{}, unavailable(fmt.Errorf("read %s: %w", stream, err))
	}
	var res struct {
		Error   *jetstream.APIError `json:"error"`
		Message *stored             `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &res); err != nil {
		return stored{}, fmt.Errorf("read %s: %w", stream, err)
	}
	switch {
	case res.Error != nil && res.Error.ErrorCode == errNoMessage:
		return stored{}, ErrNotFound
	case res.Error != nil:
		return stored{}, unavailable(fmt.Errorf("read %s: %w", stream, res.Error))
	case res.Message == nil:
		return stored{}, fmt.Errorf("read %s: answer without a message", stream)
	}
	return *res.Message, nil
}

// A stream that has no leader answers nobody, so a read during an election is
// asked again soon, for leaderTries times leaderTry at most.
const (
	leaderTry   = time.Second
	leaderTries = 5
)

// askLeader sends a request until it is answered.
func (l *Log) askLeader(ctx context.Context, subject string, req []byte) (msg *nats.Msg, err error) {
	for range leaderTries {
		try, cancel := context.WithTimeout(ctx, leaderTry)
		msg, err = l.nc.RequestWithContext(try, subject, req)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return msg, err
		}
	}
	return nil, err
}

// leaderKV reads a key of a bucket from its leader; a deleted one is ErrNotFound.
func (l *Log) leaderKV(ctx context.Context, bucket, key string) (stored, error) {
	m, err := l.leaderGet(ctx, "KV_"+bucket, getRequest{LastBy: "$KV." + bucket + "." + key})
	if err != nil {
		return m, err
	}
	h, err := m.header()
	if err == nil && h.Get("KV-Operation") != "" {
		err = ErrNotFound
	}
	return m, err
}
