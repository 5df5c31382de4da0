package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

const (
	inboxStream = "INBOX"
	jobsStream  = "JOBS"
	consumer    = "workers"

	// maxWaiting is the bound of each of a session's two inbox subjects.
	maxWaiting = 128

	// setUpTry bounds one request for a stream, bucket or consumer. One that was
	// created nevertheless is found by the next try.
	setUpTry = time.Second
)

// minServer is the oldest nats-server that does what runlog asks for.
const minServer = "2.12.0"

// minPayload is the largest message that has to get through: a frame and its headers.
const minPayload = event.MaxFrame + 4<<10

// setUp brings all streams and buckets up, those of an existing installation
// unchanged.
func (l *Log) setUp(ctx context.Context) error {
	if err := l.checkServer(); err != nil {
		return err
	}
	var configs []jetstream.StreamConfig
	for p := range l.opts.Partitions {
		configs = append(configs, l.logConfig(p))
	}
	for _, c := range append(configs, l.inboxConfig(), l.jobsConfig(), l.timersConfig()) {
		if err := l.ensureStream(ctx, c); err != nil {
			return err
		}
	}
	if err := l.ensureBuckets(ctx); err != nil {
		return err
	}
	if err := l.checkInstall(ctx); err != nil {
		return err
	}
	return l.ensureConsumer(ctx)
}

func (l *Log) checkServer() error {
	if !l.nc.IsConnected() {
		return unavailable(fmt.Errorf("connect: %w", nats.ErrDisconnected))
	}
	if v := l.nc.ConnectedServerVersion(); older(v, minServer) {
		return fmt.Errorf("nats-server %s is too old: it ignores settings that runlog needs; use %s or newer", v, minServer)
	}
	if most := l.nc.MaxPayload(); most < minPayload {
		return fmt.Errorf("nats-server takes messages of %d bytes at most, and runlog writes larger ones: set its max_payload to %d or more (its default is 1MB)", most, minPayload)
	}
	return nil
}

func older(v, than string) bool {
	return slices.Compare(numbers(v), numbers(than)) < 0
}

// numbers reads the parts of a version; a suffix such as -RC.1 is cut off.
func numbers(version string) []int {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "-")
	var out []int
	for _, part := range strings.Split(version, ".") {
		n, _ := strconv.Atoi(part)
		out = append(out, n)
	}
	return out
}

func (l *Log) logConfig(p int) jetstream.StreamConfig {
	n := fmt.Sprint(p)
	return jetstream.StreamConfig{
		Name:        streamName(p),
		Description: "runlog: session logs",
		Subjects:    []string{"log." + n + ".>"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew, // a full disk refuses, it never forgets
		Storage:     jetstream.FileStorage,
		Replicas:    l.opts.Replicas,
		AllowDirect: true,
		RePublish:   &jetstream.RePublish{Source: "log." + n + ".>", Destination: "live." + n + ".>"},
	}
}

func (l *Log) inboxConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 inboxStream,
		Description:          "runlog: commands that wait for their session's worker",
		Subjects:             []string{"inbox.>"},
		Retention:            jetstream.LimitsPolicy,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		MaxMsgsPerSubject:    maxWaiting,
		Storage:              jetstream.FileStorage,
		Replicas:             l.opts.Replicas,
		AllowDirect:          true,
		RePublish:            &jetstream.RePublish{Source: "inbox.>", Destination: "wake.>", HeadersOnly: true},
	}
}

func (l *Log) jobsConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 jobsStream,
		Description:          "runlog: tickets, at most one per session",
		Subjects:             []string{"jobs.>"},
		Retention:            jetstream.WorkQueuePolicy,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		MaxMsgsPerSubject:    1,
		Storage:              jetstream.FileStorage,
		Replicas:             l.opts.Replicas,
	}
}

// ensureStream creates the stream, or checks that what is there behaves the
// same. Only Replicas of an existing stream may differ: an operator scales them.
func (l *Log) ensureStream(ctx context.Context, want jetstream.StreamConfig) error {
	var s jetstream.Stream
	err := l.patiently(ctx, func(ctx context.Context) (err error) {
		s, err = l.js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s, err = l.js.CreateStream(ctx, want)
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was first, with other replicas
			s, err = l.js.Stream(ctx, want.Name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				err = errors.Join(ErrUnavailable, err) // and is not done yet
			}
		}
		return err
	})
	if err != nil {
		return unavailable(fmt.Errorf("stream %s: %w", want.Name, err))
	}
	return checkGranted(want, s.CachedInfo().Config)
}

// patiently tries until it gets an answer. A stream that many processes set up
// at once, or whose leader is being elected, answers nobody: each try is short.
// Nodes that are not there yet, or not at the moment, are waited for.
func (l *Log) patiently(ctx context.Context, try func(ctx context.Context) error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		short, cancel := context.WithTimeout(ctx, setUpTry)
		err := l.forbidden(try(short))
		cancel()
		if !passes(err) || ctx.Err() != nil {
			return err
		}
		if wait >= time.Second {
			l.opts.Logger.Warn("the event log cannot be set up yet; trying again", "err", err)
		}
		if sleep(ctx, wait) != nil {
			return err
		}
	}
}

// forbidden is why a request got no answer, if that is what the connection's user may do:
// the server drops the request, and tells the connection why.
func (l *Log) forbidden(err error) error {
	if why := l.nc.LastError(); errors.Is(err, context.DeadlineExceeded) && errors.Is(why, nats.ErrPermissionViolation) {
		return why
	}
	return err
}

// passes reports whether an error is over when the cluster is complete. A node that has
// not told yet how it is makes the server say that a peer is offline, and one that it has not
// seen since it started, that there is a miscellaneous issue.
func passes(err error) bool {
	if apiCode(err) == errNoPeers {
		return strings.Contains(err.Error(), "offline") || strings.Contains(err.Error(), "miscellaneous")
	}
	return errors.Is(unavailable(err), ErrUnavailable)
}

// checkGranted compares what was asked for with what the server says it does.
func checkGranted(want, got jetstream.StreamConfig) error {
	checks := []struct {
		what      string
		want, got any
	}{
		{"subjects", want.Subjects, got.Subjects},
		{"retention", want.Retention, got.Retention},
		{"discard", want.Discard, got.Discard},
		{"discard per subject", want.DiscardNewPerSubject, got.DiscardNewPerSubject},
		{"direct get", want.AllowDirect, got.AllowDirect},
		{"republish", want.RePublish, got.RePublish},
		{"schedules", want.AllowMsgSchedules, got.AllowMsgSchedules},
		{"max age", time.Duration(0), got.MaxAge},
	}
	for _, c := range checks {
		if !reflect.DeepEqual(c.want, c.got) {
			return fmt.Errorf("stream %s has %s %v, runlog needs %v: the server ignores the setting or somebody changed it", want.Name, c.what, c.got, c.want)
		}
	}
	return nil
}

// consumer hands tickets out. Each epoch has its own, so that a worker that has slept
// through a restore gets none.
func (l *Log) consumer() string {
	if l.epoch == 0 {
		return consumer
	}
	return consumer + "-" + l.epoch.String()
}

func (l *Log) ensureConsumer(ctx context.Context) error {
	if err := l.retireConsumers(ctx); err != nil {
		return unavailable(fmt.Errorf("take back tickets: %w", err))
	}
	want := jetstream.ConsumerConfig{
		Durable:       l.consumer(),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       l.opts.Lease,
		MaxDeliver:    -1,
		MaxAckPending: -1, // the default would hand out 1000 tickets to the whole cluster
		MaxWaiting:    1 << 16,
	}
	err := l.patiently(ctx, func(ctx context.Context) error {
		_, err := l.js.CreateOrUpdateConsumer(ctx, jobsStream, want)
		return err
	})
	if err != nil {
		return unavailable(fmt.Errorf("consumer of %s: %w", jobsStream, err))
	}
	return nil
}

// retireConsumers deletes those of other epochs, and the tickets that they have handed out
// are handed out again. So are those of a process that is dead because nobody else can be
// alive.
func (l *Log) retireConsumers(ctx context.Context) error {
	if l.epoch == 0 && !l.opts.Exclusive {
		return nil
	}
	jobs, err := l.js.Stream(ctx, jobsStream)
	if err != nil {
		return err
	}
	list := jobs.ConsumerNames(ctx)
	for name := range list.Name() {
		if name == l.consumer() && !l.opts.Exclusive {
			continue
		}
		if err := jobs.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	return list.Err()
}

func (l *Log) ensureBuckets(ctx context.Context) (err error) {
	l.runs, err = l.bucket(ctx, jetstream.KeyValueConfig{Bucket: "RUNS", TTL: runsKept})
	if err != nil {
		return err
	}
	l.snap, err = l.bucket(ctx, jetstream.KeyValueConfig{Bucket: "SNAPSHOTS"})
	if err != nil {
		return err
	}
	l.reg, err = l.bucket(ctx, jetstream.KeyValueConfig{Bucket: "REGISTRY"})
	return err
}

func (l *Log) bucket(ctx context.Context, c jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	c.History, c.Storage, c.Replicas = 1, jetstream.FileStorage, l.opts.Replicas
	var kv jetstream.KeyValue
	err := l.patiently(ctx, func(ctx context.Context) (err error) {
		kv, err = l.js.KeyValue(ctx, c.Bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			kv, err = l.js.CreateKeyValue(ctx, c)
		}
		if errors.Is(err, jetstream.ErrBucketExists) { // another process was first
			kv, err = l.js.KeyValue(ctx, c.Bucket)
		}
		return err
	})
	if err != nil {
		return nil, unavailable(fmt.Errorf("bucket %s: %w", c.Bucket, err))
	}
	return kv, nil
}

// install is what all processes must agree on while they live.
type install struct {
	Partitions int         `json:"partitions"`
	Restored   event.Epoch `json:"restored,omitempty"` // see Restore
}

// checkInstall writes the number of partitions once and compares ever after:
// with another number, sessions would be looked for in the wrong stream.
func (l *Log) checkInstall(ctx context.Context) error {
	mine := install{Partitions: l.opts.Partitions}
	err := l.patiently(ctx, func(ctx context.Context) error {
		_, err := l.reg.Create(ctx, "install", event.Encode(mine))
		return err
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return unavailable(fmt.Errorf("write install record: %w", err))
	}
	there, err := l.installed(ctx)
	if err != nil {
		return err
	}
	if there.Partitions != mine.Partitions {
		return fmt.Errorf("this installation has %d partitions, not %d: set RUNLOG_PARTITIONS=%d", there.Partitions, mine.Partitions, there.Partitions)
	}
	l.epoch = there.Restored
	return nil
}

// installed reads the install record.
func (l *Log) installed(ctx context.Context) (there install, err error) {
	m, err := l.leaderKV(ctx, "REGISTRY", "install")
	if err == nil {
		err = json.Unmarshal(m.Data, &there)
	}
	if err != nil {
		return there, fmt.Errorf("install record: %w", err)
	}
	return there, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// tokens cuts a subject.
func tokens(subject string) []string { return strings.Split(subject, ".") }
