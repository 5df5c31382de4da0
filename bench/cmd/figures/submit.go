package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// submits is how many runs each round submits, one after the other.
const submits = 300

// submit measures from a request to run.started at its client, and beside each
// one the same server's empty handler.
func submit(b *bench) ([]row, error) {
	dir, err := b.newDir("dev")
	if err != nil {
		return nil, err
	}
	p, err := b.dev(dir, filepath.Join(b.dir, "agents"))
	if err != nil {
		return nil, err
	}
	defer p.stop()
	var empty, started times
	for i := range submits/10 + b.rounds*submits {
		e, err := emptyRequest(p.url())
		if err != nil {
			return nil, err
		}
		s, err := startedIn(p.url())
		if err != nil {
			return nil, err
		}
		if i >= submits/10 { // warm
			empty, started = append(empty, e), append(started, s)
		}
	}
	over50, over99 := started.at(.5)-empty.at(.5), started.at(.99)-empty.at(.99)
	detail := func(q float64) string {
		return fmt.Sprintf("(%s; empty handler %s)", ms(started.at(q)), ms(empty.at(q)))
	}
	return []row{
		{"submit → `run.started` at the client, p50 over an empty handler", "≤ 5 ms", "+" + ms(over50) + " " + detail(.5), over50 <= 5*time.Millisecond},
		{"the same, p99", "≤ 50 ms", "+" + ms(over99) + " " + detail(.99), over99 <= 50*time.Millisecond},
	}, nil
}

func emptyRequest(url string) (time.Duration, error) {
	began := time.Now()
	resp, err := http.Get(url + "/healthz")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return time.Since(began), err
}

// startedIn submits a run and waits for its end, so that the connection can be
// used again.
func startedIn(url string) (took time.Duration, err error) {
	req, err := http.NewRequest("POST", url+"/v1/runs", strings.NewReader(`{"agent":"quick","input":"Go."}`))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "text/event-stream")
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		switch lines.Text() {
		case "event: run.started":
			took = time.Since(began)
		case "event: run.failed":
			return 0, fmt.Errorf("a run failed")
		}
	}
	if took == 0 && lines.Err() == nil {
		return 0, fmt.Errorf("status %s and no run.started", resp.Status)
	}
	return took, lines.Err()
}
