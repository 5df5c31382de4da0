package testservers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// WaitReady waits until a GET of url answers 200, and ends the test if the process ends first or takes a minute.
func (p *Process) WaitReady(url string) {
	p.t.Helper()
	if err := p.await(p.current(), func() error { return answers(url) }); err != nil {
		p.t.Fatal(err)
	}
}

// WaitTLS waits until the process takes connections of TLS, whatever its certificate is.
func (p *Process) WaitTLS(addr string) {
	p.t.Helper()
	err := p.await(p.current(), func() error {
		conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// WaitLog waits until the process has printed a line that contains text, in any of its lives, and returns the first
// such line.
func (p *Process) WaitLog(text string) string {
	p.t.Helper()
	var line string
	err := p.await(p.current(), func() error {
		line = lineWith(p.Log(), text)
		if line == "" {
			return fmt.Errorf("no line with %q", text)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return line
}

// Log returns all the process has printed so far, in all its lives.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return ""
	}
	return string(data)
}

func lineWith(log, text string) string {
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) {
			return strings.TrimSuffix(line, "\n")
		}
	}
	return ""
}

// logTail is what a person reads of a failed test.
func (p *Process) logTail() string {
	const keep = 64 << 10
	log := p.Log()
	if len(log) <= keep {
		return log
	}
	return fmt.Sprintf("... %d bytes before this\n%s", len(log)-keep, log[len(log)-keep:])
}

// await asks ready again and again until it returns nil; some servers log each time they say no.
func (p *Process) await(run *running, ready func() error) error {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-run.done:
			return fmt.Errorf("%s ended before it was ready (%w): %w\n%s", p.spec.name, exitError(run), err, p.logTail())
		case <-deadline.C:
			return fmt.Errorf("%s was not ready after %v: %w\n%s", p.spec.name, startTimeout, err, p.logTail())
		case <-tick.C:
		}
	}
}

// exitError is never nil: a server that ended by itself with status 0 did not serve either.
func exitError(r *running) error {
	if r.err == nil {
		return errors.New("exit status 0")
	}
	return r.err
}

// awaitStopped waits until the kernel reports every thread as stopped; elsewhere than on Linux it cannot tell.
func (p *Process) awaitStopped() error {
	run := p.current()
	pattern := fmt.Sprintf("/proc/%d/task/*/stat", run.cmd.Process.Pid)
	return p.await(run, func() error {
		threads, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !stopped(stat) {
				return fmt.Errorf("%s still runs: %s", p.spec.name, stat)
			}
		}
		return nil
	})
}

// stopped reads a line of /proc: "pid (name) state ...", where the name may contain anything.
func stopped(stat []byte) bool {
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return bytes.HasPrefix(state, []byte("T"))
}

var probe = &http.Client{
	Timeout:   2 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true},
}

func answers(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := probe.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return nil
}
