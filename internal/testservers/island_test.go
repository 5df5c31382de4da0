package testservers_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// A node that is cut off hears nothing and says nothing; the others go on without it, and have it back afterwards.
func TestANodeIsCutOff(t *testing.T) {
	c := testservers.NATSWithIsland(t, 3)
	others, err := nats.Connect(c.Node(0).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()
	alone, err := nats.Connect(c.Node(2).URL(), nats.MaxReconnects(-1), nats.Timeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	js, err := jetstream.New(others)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	c.CutOff()
	if err := alone.FlushTimeout(2 * time.Second); err == nil {
		t.Error("the node that is cut off answers")
	}
	eventually(t, func() bool { _, err := js.Publish(t.Context(), "s", []byte("meanwhile")); return err == nil })
	c.Join()
	eventually(t, func() bool { return alone.FlushTimeout(time.Second) == nil })
	eventually(t, func() bool {
		info, err := s.Info(t.Context())
		if err != nil || info.Cluster == nil || info.Cluster.Leader == "" {
			return false
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current {
				return false
			}
		}
		return len(info.Cluster.Replicas) == 2
	})
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("that has not come about")
		}
	}
}
