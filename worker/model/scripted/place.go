package scripted

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
)

// data is what templates see. All of it comes from the request.
type data struct {
	Input, Said      string
	Step, Attempt    int
	Turn             int
	System           string
	SessionID, RunID string
	Tools            []string
	Results          []Result
	Artifacts        []*event.Artifact
}

// A Result is what a call came to, for templates.
type Result struct {
	Name, CallID string
	Args         map[string]any
	Text         string
	Structured   any
	Failed       bool
	Error        string
	Code         event.Code
	Outcome      event.Outcome
	Truncated    bool
	ArtifactID   string
	URL          string
	MediaType    string
	Bytes        int64
	Missing      bool
}

// Result is the last result of a tool in this run.
func (d *data) Result(name string) Result {
	for i := len(d.Results) - 1; i >= 0; i-- {
		if d.Results[i].Name == name {
			return d.Results[i]
		}
	}
	return Result{Name: name, Missing: true}
}

// Failed are the results that failed.
func (d *data) Failed() []Result {
	var list []Result
	for _, r := range d.Results {
		if r.Failed {
			list = append(list, r)
		}
	}
	return list
}

// look reads the session.
func look(req model.Request) *data {
	d := &data{System: req.System, SessionID: req.Session.SessionID, RunID: req.RunID, Attempt: max(req.Attempt, 1),
		Artifacts: req.Session.Artifacts, Step: stepOf(req)}
	for _, t := range req.Tools {
		d.Tools = append(d.Tools, t.Name)
	}
	d.Input, d.Said, d.Turn = said(req, d.Step-1)
	for _, c := range req.Session.ToolCalls {
		if c.RunID == req.RunID && c.Done() {
			d.Results = append(d.Results, resultOf(c))
		}
	}
	return d
}

// stepOf is the number of the step that the request asks for, among those that
// have an answer. Whether its
// step.started is folded already makes no difference.
func stepOf(req model.Request) int {
	run := req.Session.Run(req.RunID)
	switch {
	case run == nil || run.Book == nil:
		return 1
	case run.Book.InStep:
		return max(run.Book.Step-run.Book.Vain, 1)
	}
	return run.Book.Step - run.Book.Vain + 1
}

// said finds the user's words. The input is the last of them before the answers
// of the steps that are done, which are the last so many of the run: answers
// before it came with the input, as history.
func said(req model.Request, done int) (input, last string, turn int) {
	found := false
	for i := len(req.Session.Messages) - 1; i >= 0; i-- {
		m := req.Session.Messages[i]
		switch {
		case m.Role == event.RoleUser:
			if turn++; turn == 1 {
				last = textOf(m)
			}
			if done <= 0 && !found {
				input, found = textOf(m), true
			}
		case m.Role == event.RoleAssistant && m.RunID == req.RunID && m.Status == event.Completed:
			done--
		}
	}
	return input, last, turn
}

func textOf(m *event.Message) string {
	var texts []string
	for _, p := range m.Parts {
		if p.Type == event.PartText {
			texts = append(texts, p.Text)
		}
	}
	return strings.TrimSpace(strings.Join(texts, "\n"))
}

func resultOf(c *event.ToolCall) Result {
	r := Result{Name: c.Name, CallID: c.CallID, Failed: c.Status == event.Failed, Error: c.Message, Code: c.Code,
		Outcome: c.Outcome, Truncated: c.Truncated}
	_ = json.Unmarshal([]byte(c.Args), &r.Args)
	_ = json.Unmarshal(c.Structured, &r.Structured)
	var texts []string
	for _, p := range c.Content {
		switch p.Type {
		case event.PartText:
			texts = append(texts, p.Text)
		case event.PartJSON:
			texts = append(texts, string(p.Value))
		default:
			r.file(p)
		}
	}
	r.Text = strings.Join(texts, "\n")
	if c.Artifact != nil {
		r.file(*c.Artifact)
	}
	return r
}

func (r *Result) file(p event.Part) {
	r.ArtifactID, r.MediaType, r.Bytes = p.ArtifactID, p.MediaType, p.Bytes
	if r.URL = p.URL; r.URL == "" {
		r.URL = p.URI
	}
}

// choose finds the step to play.
func (s *Script) choose(d *data) (*Step, error) {
	steps, loop, branch := s.Steps, s.Loop, "the script"
	for i, b := range s.Branches {
		if b.When.match(d.Input) {
			steps, loop, branch = b.Steps, b.Loop, fmt.Sprintf("branch %d of the script", i+1)
			break
		}
	}
	switch {
	case d.Step <= len(steps):
		return &steps[d.Step-1], nil
	case loop && len(steps) > 0:
		return &steps[len(steps)-1], nil
	case len(steps) == 0:
		return nil, fmt.Errorf("no branch of the script is for this input: give it steps without when")
	}
	return nil, fmt.Errorf("%s has %d steps and the run asks for number %d: add one, or set loop", branch, len(steps), d.Step)
}
