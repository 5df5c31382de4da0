package testservers

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A Cluster is one nats-server, or several that form a JetStream cluster.
type Cluster struct {
	t     testing.TB
	nodes []*Node
}

// A Node is one nats-server process of a Cluster. It keeps its port and its store through Stop, Kill and Start;
// Start waits until it serves JetStream again.
type Node struct {
	*Process
	Name    string // server_name, as stream and consumer infos give it: n1, n2, ...
	addr    string
	monitor string
}

// NATS starts nats-server processes with JetStream on files: 1, or 3 for streams of up to three replicas. It
// returns when every node serves JetStream, so that the cluster has a leader. Nodes do not tell clients each other's
// addresses: a client knows those of its URL, and one that goes through a Proxy stays behind it.
func NATS(t testing.TB, nodes int) *Cluster {
	t.Helper()
	bin := Tool(t, "nats-server")
	dir := testDir(t, "nats")
	c := &Cluster{t: t}
	routes := make([]string, nodes)
	for i := range nodes {
		routes[i] = "nats-route://" + FreeAddr(t)
	}
	for i := range nodes {
		c.nodes = append(c.nodes, newNode(t, bin, dir, i, routes))
	}
	c.startAll()
	return c
}

// URL returns the addresses of all nodes, comma-separated, as RUNLOG_NATS_URL takes them.
func (c *Cluster) URL() string {
	urls := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		urls[i] = n.URL()
	}
	return strings.Join(urls, ",")
}

// Nodes returns how many nodes there are.
func (c *Cluster) Nodes() int { return len(c.nodes) }

// Node returns the i-th node, counted from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// Named returns the node that a stream's or consumer's info calls name, such as its leader.
func (c *Cluster) Named(name string) *Node {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	c.t.Fatalf("no node %q in a cluster of %d", name, len(c.nodes))
	return nil
}

// Stop shuts all nodes down.
func (c *Cluster) Stop() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.Stop()
	}
}

// Kill ends all nodes with SIGKILL.
func (c *Cluster) Kill() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.Kill()
	}
}

// Start starts all nodes again and waits until every one serves JetStream.
func (c *Cluster) Start() {
	c.t.Helper()
	c.startAll()
}

// startAll launches every node before it waits for any: one alone finds no leader.
func (c *Cluster) startAll() {
	c.t.Helper()
	for _, n := range c.nodes {
		if err := n.begin(); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, n := range c.nodes {
		if err := n.await(n.current(), n.spec.ready); err != nil {
			c.t.Fatal(err)
		}
	}
}

// URL returns the address of this node alone.
func (n *Node) URL() string { return "nats://" + n.addr }

// Addr returns the host and port clients connect to, to put a Proxy before it.
func (n *Node) Addr() string { return n.addr }

// Monitor returns the base URL of the node's monitoring endpoints (/healthz, /jsz, ...).
func (n *Node) Monitor() string { return n.monitor }

func newNode(t testing.TB, bin, dir string, i int, routes []string) *Node {
	t.Helper()
	n := &Node{Name: fmt.Sprintf("n%d", i+1), addr: FreeAddr(t)}
	monitor := FreeAddr(t)
	n.monitor = "http://" + monitor
	path, err := writeFile(dir, n.Name+".conf", nodeConfig(n, monitor, filepath.Join(dir, n.Name), i, routes))
	if err != nil {
		t.Fatal(err)
	}
	n.Process, err = newProcess(t, spec{
		name: "nats-" + n.Name, path: bin, args: []string{"--config", path}, env: baseEnv(nil), dir: dir,
		ready: func() error { return answers(n.monitor + "/healthz") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.finish)
	return n
}

func nodeConfig(n *Node, monitor, store string, i int, routes []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: %s\nlisten: %q\nhttp: %q\n", n.Name, n.addr, monitor)
	fmt.Fprintf(&b, "jetstream { store_dir: %q, max_memory_store: 256MB, max_file_store: 8GB }\n", store)
	if len(routes) > 1 {
		fmt.Fprintf(&b, "cluster { name: runlog, listen: %q, no_advertise: true, routes: [%s] }\n",
			strings.TrimPrefix(routes[i], "nats-route://"), strings.Join(routes, ", "))
	}
	return b.String()
}
