package main

import (
	"fmt"
	"slices"
	"time"
)

// steps measures the worker's own time between a model and its tools: by the
// server's clock for what is stored, by this program's for what it is asked.
func steps(b *bench) ([]row, error) {
	s, _, err := b.staffedSite(64)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if _, err := s.toolRun("warm", "", 50, 100); err != nil {
		return nil, err
	}
	var toTool, toModel, whole times
	for i := range b.rounds {
		key := fmt.Sprintf("steps%d", i)
		r, err := s.toolRun(key, "", 200, 100)
		if err != nil {
			return nil, err
		}
		list, err := s.frames(r.SessionID)
		if err != nil {
			return nil, err
		}
		toTool = append(toTool, between(list, "step.completed", "tool.running")...)
		toModel = append(toModel, untilAsked(list, s.model.requests(key))...)
		whole = append(whole, pause(s.model.answered(key), s.tools.calledAt())...)
	}
	speed, err := s.throughput()
	if err != nil {
		return nil, err
	}
	return []row{
		stepRow("last frame of a model step → `tool.running` committed, p50", toTool),
		{what: "the model's last byte → the call at the tool's server, p50", got: fmt.Sprintf("%s (p99 %s)", ms(whole.median()), ms(whole.at(.99)))},
		stepRow("last tool result committed → next request at the model, p50", toModel),
		speed,
	}, nil
}

func stepRow(what string, t times) row {
	return row{what, "≤ 3 ms", fmt.Sprintf("%s (p99 %s, %d steps)", ms(t.median()), ms(t.at(.99)), len(t)), t.median() <= 3*time.Millisecond}
}

// toolRun lets an agent call its tool n times, for size bytes each.
func (s *site) toolRun(key, session string, n, size int) (runRef, error) {
	r, err := s.submit("live", session, fmt.Sprintf("tools %s %d %d", key, n, size))
	if err != nil {
		return r, err
	}
	return r, s.finish(r)
}

// has reports whether a frame has an event of a type.
func (f frame) has(t string) bool {
	return slices.ContainsFunc(f.events, func(l line) bool { return l.Type == t })
}

// between is from each frame with one type of event to the next frame with
// another one; nothing if they are in the same frame.
func between(list []frame, from, to string) (took times) {
	var at time.Time
	for _, f := range list {
		if f.has(from) {
			at = f.at
		}
		if !at.IsZero() && f.has(to) {
			took = append(took, f.at.Sub(at))
			at = time.Time{}
		}
	}
	return took
}

// untilAsked is from each result of a tool to the request that comes after it.
func untilAsked(list []frame, asked []time.Time) times {
	var results []time.Time
	for _, f := range list {
		if f.has("tool.completed") {
			results = append(results, f.at)
		}
	}
	return pause(results, asked)
}

// pause is from each of some points in time to the next one of others.
func pause(from, to []time.Time) (took times) {
	for _, at := range from {
		if i, _ := slices.BinarySearchFunc(to, at, time.Time.Compare); i < len(to) {
			took = append(took, to[i].Sub(at))
		}
	}
	return took
}

// throughput is what one run brings into the log if its model has no bounds.
func (s *site) throughput() (row, error) {
	r, err := s.submit("fast", "", "Go.")
	if err != nil {
		return row{}, err
	}
	if err := s.finish(r); err != nil {
		return row{}, err
	}
	list, err := s.frames(r.SessionID)
	if err != nil {
		return row{}, err
	}
	var events, text int
	for _, f := range list {
		for _, l := range f.events {
			events++
			if l.Type == "message.completed" {
				text = len(l.Data) // the answer is the last one
			}
		}
	}
	took := list[len(list)-1].at.Sub(list[0].at)
	return row{what: fmt.Sprintf("a model that says %d KB at once: log complete after", text>>10), got: fmt.Sprintf("%s (%.1f MB/s of text, %d events in %d frames)",
		ms(took), float64(text)/took.Seconds()/1e6, events, len(list))}, nil
}

// The long session of the growth of a step's cost.
const (
	longSteps = 1400 // about 10,000 events
	edgeSteps = 100  // compared at each end
)

// long measures whether a step costs more the longer its session is, besides the
// request, which has all of it.
func long(b *bench) ([]row, error) {
	s, w, err := b.staffedSite(4)
	if err != nil {
		return nil, err
	}
	defer s.close()
	r, err := s.toolRun("long", "", longSteps, 200)
	if err != nil {
		return nil, err
	}
	list, err := s.frames(r.SessionID)
	if err != nil {
		return nil, err
	}
	events := 0
	for _, f := range list {
		events += len(f.events)
	}
	asked := s.model.requests("long")
	first, last := pace(asked[:edgeSteps]), pace(asked[len(asked)-edgeSteps:])
	own := between(list, "tool.completed", "step.started")
	early, late := own[:edgeSteps].median(), own[len(own)-edgeSteps:].median()
	cpu, err := cpuOf(w.pid())
	if err != nil {
		return nil, err
	}
	return []row{
		{what: fmt.Sprintf("a session of %d events: from a tool's result to the next step in the log, at its beginning and its end", events),
			got: ms(early) + " and " + ms(late)},
		{what: "the same, from one request to the model to the next, which has all of the session",
			got: fmt.Sprintf("%s and %s (worker's CPU per step, of all: %s)", ms(first), ms(last), ms(cpu/longSteps))},
	}, nil
}

// pace is the median time from one request to the next.
func pace(asked []time.Time) time.Duration {
	var t times
	for i := range asked[1:] {
		t = append(t, asked[i+1].Sub(asked[i]))
	}
	return t.median()
}
