package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

const (
	pastInputs = 4         // messages of pastInput before the runs that count: 200,000 tokens
	pastInput  = 200 << 10 // bytes
	fewCalls   = 50
)

// growth measures what runs add to the log of a long conversation.
func growth(b *bench) ([]row, error) {
	s, _, err := b.staffedSite(4)
	if err != nil {
		return nil, err
	}
	defer s.close()
	few, err := s.grown("half", fewCalls)
	if err != nil {
		return nil, err
	}
	many, err := s.grown("full", 2*fewCalls)
	if err != nil {
		return nil, err
	}
	ratio := float64(many.stored) / float64(few.stored)
	rows := []row{{fmt.Sprintf("log of %d tool calls against %d, 1 KB each, in a conversation of 200,000 tokens", 2*fewCalls, fewCalls), "≤ 2 ×",
		fmt.Sprintf("%.2f × (%d KB against %d KB)", ratio, many.stored>>10, few.stored>>10), ratio < 2.05}} // numbers get longer
	rows = append(rows, few.row(fmt.Sprintf("log bytes by byte of content, %d tool calls of 1 KB", fewCalls)))
	said, err := s.said()
	if err != nil {
		return nil, err
	}
	return append(rows, said.row("the same, an answer of 500 words, 50 a second")), nil
}

// grown is what a run with n calls adds to a session with a long history.
func (s *site) grown(key string, n int) (logged, error) {
	session := "grown-" + key
	for i := range pastInputs {
		r, err := s.submit("live", session, fmt.Sprintf("tools %s-history%d 0 0 %s", key, i, prose(pastInput)))
		if err != nil {
			return logged{}, err
		}
		if err := s.finish(r); err != nil {
			return logged{}, err
		}
	}
	r, err := s.toolRun(key, session, n, 1<<10)
	if err != nil {
		return logged{}, err
	}
	return s.logged(r)
}

func (s *site) said() (logged, error) {
	r, err := s.submit("live", "", "say words 500")
	if err != nil {
		return logged{}, err
	}
	if err := s.finish(r); err != nil {
		return logged{}, err
	}
	return s.logged(r)
}

// logged is what a run has in the log, in bytes. Content is what was said, asked
// of tools and answered by them, once.
type logged struct {
	stored, deltas, closers, rest int
	content                       int
	events                        int
}

func (l logged) row(what string) row {
	per := func(n int) float64 { return float64(n) / float64(l.content) }
	return row{what: what, got: fmt.Sprintf("%.1f × (deltas %.1f, closers %.1f, other events %.1f, headers of frames %.1f; %d events, %d bytes of content)",
		per(l.stored), per(l.deltas), per(l.closers), per(l.rest), per(l.stored-l.deltas-l.closers-l.rest), l.events, l.content)}
}

func (s *site) logged(r runRef) (l logged, err error) {
	list, err := s.frames(r.SessionID)
	for _, f := range list {
		if len(f.events) == 0 || f.events[0].RunID != r.RunID && f.events[len(f.events)-1].RunID != r.RunID {
			continue
		}
		l.stored += f.stored
		for _, e := range f.events {
			l.add(e)
		}
	}
	return l, err
}

func (l *logged) add(e line) {
	l.events++
	switch {
	case strings.HasSuffix(e.Type, ".delta"):
		l.deltas += e.bytes
	case e.Type == "message.completed" || e.Type == "tool.args" || e.Type == "tool.completed" || e.Type == "reasoning.completed":
		l.closers += e.bytes
		l.content += contentOf(e)
	default:
		l.rest += e.bytes
	}
}

// contentOf counts texts, and of tools' arguments and results each once.
func contentOf(e line) (n int) {
	var d struct {
		Args           string
		Parts, Content []struct{ Text string }
	}
	if json.Unmarshal(e.Data, &d) != nil {
		return 0
	}
	if e.Type == "tool.args" {
		n = len(d.Args)
	}
	for _, p := range append(d.Parts, d.Content...) {
		n += len(p.Text)
	}
	return n
}
