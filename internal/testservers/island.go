package testservers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// NATSWithIsland is NATS with a network of its own for the last node, which CutOff takes away and Join gives back: a
// namespace with one link to the rest of the machine. Where that is not allowed (it takes root, Linux and `ip`) the node
// is on the network of all others, and CutOff freezes it instead; the test's log says so.
func NATSWithIsland(t testing.TB, nodes int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	island, err := newIsland()
	if err != nil {
		t.Logf("a node that is cut off will be frozen instead: no network namespace: %v", err)
		return NATS(t, nodes)
	}
	t.Cleanup(island.sink)
	c.island = island
	places := make([]place, nodes)
	for i := range places {
		places[i] = place{clients: localhost, routes: island.near}
	}
	places[nodes-1] = place{clients: island.far, routes: island.far, launch: []string{"ip", "netns", "exec", island.name}}
	c.settle(places)
	return c
}

// CutOff separates the last node from all others and from its clients. Connections stay open, and nothing gets through.
func (c *Cluster) CutOff() {
	c.t.Helper()
	if c.island == nil {
		c.nodes[len(c.nodes)-1].Pause()
		return
	}
	if err := c.island.link("down"); err != nil {
		c.t.Error(err)
	}
}

// Join undoes CutOff.
func (c *Cluster) Join() {
	c.t.Helper()
	if c.island == nil {
		c.nodes[len(c.nodes)-1].Resume()
		return
	}
	if err := c.island.link("up"); err != nil {
		c.t.Error(err)
	}
}

// An island is a network namespace with one link, whose ends have the addresses near and far.
type island struct{ name, near, far string }

// newIsland makes one for this process. Its name and addresses come from the pid, so that no two are the same.
func newIsland() (*island, error) {
	sinkWrecks()
	pid := os.Getpid()
	net := fmt.Sprintf("10.%d.%d.", 192+pid>>8&63, pid&255)
	i := &island{name: fmt.Sprint(islands, pid), near: net + "1", far: net + "2"}
	outside := i.name
	for _, args := range []string{
		"netns add " + i.name,
		"link add " + outside + " type veth peer name eth0 netns " + i.name,
		"addr add " + i.near + "/30 dev " + outside,
		"link set " + outside + " up",
		"-n " + i.name + " addr add " + i.far + "/30 dev eth0",
		"-n " + i.name + " link set lo up",
		"-n " + i.name + " link set eth0 up",
	} {
		if err := ip(strings.Fields(args)...); err != nil {
			i.sink()
			return nil, err
		}
	}
	return i, nil
}

// islands begins the names of all.
const islands = "runlog-"

func (i *island) link(state string) error { return ip("-n", i.name, "link", "set", "eth0", state) }

// sink takes the namespace away, and with it both ends of the link.
func (i *island) sink() { _ = errors.Join(ip("netns", "del", i.name), ip("link", "del", i.name)) }

// sinkWrecks takes away what processes have left that were killed.
func sinkWrecks() {
	list, _ := filepath.Glob("/run/netns/" + islands + "*")
	for _, path := range list {
		name := filepath.Base(path)
		pid, err := strconv.Atoi(strings.TrimPrefix(name, islands))
		if _, gone := os.Stat(fmt.Sprint("/proc/", pid)); err == nil && os.IsNotExist(gone) {
			(&island{name: name}).sink()
		}
	}
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
