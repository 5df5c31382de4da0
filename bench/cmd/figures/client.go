package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Clients of an edge: one for calls, as many connections as they take, and one for
// streams, whose connections an edge does not use again (Keep-Alive: timeout=0).
var (
	calls   = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}
	streams = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
)

// A run as an edge answers for it.
type runRef struct {
	RunID     string `json:"run_id"`
	SessionID string `json:"session_id"`
}

// post sends JSON and reads the answer into out, which may be nil.
func post(url string, body, out any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	resp, err := calls.Post(url, "application/json", bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("POST %s: %s: %s", url, resp.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// submit asks for a run; it has begun some time later. An empty session is a new one.
func (s *site) submit(agent, session, input string) (r runRef, err error) {
	body := map[string]any{"agent": agent, "input": input}
	if session != "" {
		body["session_id"] = session
	}
	return r, post(s.edge.url()+"/v1/runs", body, &r)
}

// A seen is an event at a client, and when it came.
type seen struct {
	Seq   int64
	Type  string
	RunID string `json:"run_id"`
	Data  struct {
		CallID string `json:"call_id"`
		Status string
	}
	at time.Time
}

// A follower reads the stream of a run.
type follower struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

// follow opens the stream of a run from its beginning.
func (s *site) follow(runID string) (*follower, error) {
	req, err := http.NewRequest("GET", s.edge.url()+"/v1/runs/"+runID+"/events", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := streams.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("stream of %s: %s", runID, resp.Status)
	}
	return &follower{resp.Body, bufio.NewReaderSize(resp.Body, 16<<10)}, nil
}

// until reads through the first event that is looked for.
func (f *follower) until(is func(seen) bool) (seen, error) {
	for {
		line, err := f.lines.ReadBytes('\n')
		if err != nil {
			return seen{}, fmt.Errorf("the stream ended too early: %w", err)
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		e := seen{at: time.Now()}
		if json.Unmarshal(data, &e) == nil && is(e) {
			return e, nil
		}
	}
}

// ofType looks for events of a type.
func ofType(t string) func(seen) bool { return func(e seen) bool { return e.Type == t } }

func ended(e seen) bool {
	return e.Type == "run.completed" || e.Type == "run.failed" || e.Type == "run.cancelled"
}

func (f *follower) close() { _ = f.body.Close() }

// finish waits for the end of a run, which must be a good one.
func (s *site) finish(r runRef) error {
	f, err := s.follow(r.RunID)
	if err != nil {
		return err
	}
	defer f.close()
	e, err := f.until(ended)
	if err == nil && e.Type != "run.completed" {
		err = fmt.Errorf("%s ended with %s", r.RunID, e.Type)
	}
	return err
}
