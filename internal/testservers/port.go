package testservers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports are taken from below the range the kernel hands out for outgoing connections (32768 and up), so that a port
// stays free while its server is stopped.
const (
	firstPort = 12000
	lastPort  = 32000
)

// FreePort returns a port of 127.0.0.1 that nobody listens on and that no other test process using this package
// gets until this one ends.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// FreeAddr is FreePort as an address to listen on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return loopback(FreePort(t))
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func freePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if !unused(port) || !reserve(port) {
			continue
		}
		return port, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d on 127.0.0.1", firstPort, lastPort)
}

func unused(port int) bool {
	l, err := net.Listen("tcp4", loopback(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
