package testservers

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A Cluster is one nats-server, or several that form a JetStream cluster.
type Cluster struct {
	t      testing.TB
	nodes  []*Node
	island *island // of the last node, if it has one
}

// A Node is one nats-server process of a Cluster. It keeps its port and its store through Stop, Kill and Start;
// Start waits until it serves JetStream again.
type Node struct {
	*Process
	Name    string // server_name, as stream and consumer infos give it: n1, n2, ...
	addr    string
	monitor string
	store   string
}

// NATS starts nats-server processes with JetStream on files: 1, or 3 for streams of up to three replicas. It
// returns when every node serves JetStream, so that the cluster has a leader. Nodes do not tell clients each other's
// addresses: a client knows those of its URL, and one that goes through a Proxy stays behind it.
func NATS(t testing.TB, nodes int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	places := make([]place, nodes)
	for i := range places {
		places[i] = place{clients: localhost, routes: localhost}
	}
	c.settle(places)
	return c
}

const localhost = "127.0.0.1"

// A place is where a node lives: the addresses that it listens on, and what to put before its command.
type place struct {
	clients, routes string
	launch          []string
}

func (c *Cluster) settle(places []place) {
	c.t.Helper()
	bin, dir := Tool(c.t, "nats-server"), testDir(c.t, "nats")
	routes := make([]string, len(places))
	for i, at := range places {
		routes[i] = "nats-route://" + net.JoinHostPort(at.routes, strconv.Itoa(FreePort(c.t)))
	}
	for i, at := range places {
		c.nodes = append(c.nodes, newNode(c.t, bin, dir, i, routes, at))
	}
	c.startAll()
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

// Store returns the directory of what the node stores: what an operator backs up.
func (n *Node) Store() string { return n.store }

// Monitor returns the base URL of the node's monitoring endpoints (/healthz, /jsz, ...).
func (n *Node) Monitor() string { return n.monitor }

func newNode(t testing.TB, bin, dir string, i int, routes []string, at place) *Node {
	t.Helper()
	addr := func() string { return net.JoinHostPort(at.clients, strconv.Itoa(FreePort(t))) }
	n := &Node{Name: fmt.Sprintf("n%d", i+1), addr: addr()}
	monitor := addr()
	n.monitor = "http://" + monitor
	n.store = filepath.Join(dir, n.Name)
	path, err := writeFile(dir, n.Name+".conf", nodeConfig(n, monitor, i, routes))
	if err != nil {
		t.Fatal(err)
	}
	command := append(slices.Clone(at.launch), bin, "--config", path)
	n.Process, err = newProcess(t, spec{
		name: "nats-" + n.Name, path: command[0], args: command[1:], env: baseEnv(nil), dir: dir,
		ready: func() error { return answers(n.monitor + "/healthz") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.finish)
	return n
}

func nodeConfig(n *Node, monitor string, i int, routes []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: %s\nlisten: %q\nhttp: %q\n", n.Name, n.addr, monitor)
	fmt.Fprintf(&b, "jetstream { store_dir: %q, max_memory_store: 256MB, max_file_store: 8GB }\n", n.store)
	if len(routes) > 1 {
		fmt.Fprintf(&b, "cluster { name: runlog, listen: %q, no_advertise: true, routes: [%s] }\n",
			strings.TrimPrefix(routes[i], "nats-route://"), strings.Join(routes, ", "))
	}
	return b.String()
}
