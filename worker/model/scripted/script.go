package scripted

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/runlog-dev/runlog/event"
)

// A Script is a parsed script. It is not changed by playing it.
type Script struct {
	Rate     float64  `yaml:"rate"` // tokens per second
	Branches []Branch `yaml:"branches"`
	Steps    []Step   `yaml:"steps"`
	Loop     bool     `yaml:"loop"`
}

// A Branch is played where When matches the input.
type Branch struct {
	When  Pattern `yaml:"when"`
	Steps []Step  `yaml:"steps"`
	Loop  bool    `yaml:"loop"`
}

// A Step is one answer of the model.
type Step struct {
	Delay      Wait               `yaml:"delay"`
	Rate       *float64           `yaml:"rate"`
	Reasoning  Text               `yaml:"reasoning"`
	Text       Text               `yaml:"text"`
	Calls      []Call             `yaml:"calls"`
	Interleave bool               `yaml:"interleave"`
	Finish     event.FinishReason `yaml:"finish"`
	Fail       *Fail              `yaml:"fail"`
}

// A Call of a tool.
type Call struct {
	If   Text `yaml:"if"` // left out where this comes to nothing
	Name Text `yaml:"name"`
	Args Args `yaml:"args"`
}

// Fail says how a step fails.
type Fail struct {
	Kind       string     `yaml:"kind"` // error | stall | truncate | refuse
	Attempts   []int      `yaml:"attempts"`
	After      int        `yaml:"after"`
	Code       event.Code `yaml:"code"`
	Message    string     `yaml:"message"`
	Retryable  *bool      `yaml:"retryable"`
	RetryAfter Wait       `yaml:"retry_after"`
	Stall      Wait       `yaml:"stall"`
}

// Kinds of failure.
const (
	failError    = "error"
	failStall    = "stall"
	failTruncate = "truncate"
	failRefuse   = "refuse"
)

// hits reports whether the failure is meant for this attempt.
func (f *Fail) hits(attempt int) bool {
	return f != nil && (len(f.Attempts) == 0 || slices.Contains(f.Attempts, attempt))
}

// An Error says what is wrong with a script, and where.
type Error struct {
	File         string // empty where the script is not from a file
	Line, Column int    // 1, 2, …; 0 where it is not one place
	Message      string
}

func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	if where == "" {
		return "script: " + e.Message
	}
	if e.File == "" {
		where = "script" + where
	}
	return where + ": " + e.Message
}

// Load reads a script from a file.
func Load(path string) (*Script, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	s, err := Parse(text)
	var e *Error
	if errors.As(err, &e) {
		e.File = path
	}
	return s, err
}

// Parse reads a script. What is wrong with it is an *Error with line and column.
func Parse(text []byte) (*Script, error) {
	var s Script
	if err := read(text, &s); err != nil {
		return nil, located(err)
	}
	if err := s.check(text); err != nil {
		return nil, err
	}
	return &s, nil
}

// read reads YAML. Its reader panics at some of what is none.
func read(text []byte, s *Script) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("this is no YAML: %v", p)
		}
	}()
	return yaml.UnmarshalWithOptions(text, s, yaml.Strict())
}

// located takes the place out of an error of the YAML reader.
func located(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	e := &Error{Message: err.Error()}
	var theirs yaml.Error
	if errors.As(err, &theirs) {
		e.Message = theirs.GetMessage()
		if t := theirs.GetToken(); t != nil && t.Position != nil {
			e.Line, e.Column = t.Position.Line, t.Position.Column
		}
	}
	return e
}

// A checker gathers what the YAML reader cannot know.
type checker struct {
	text []byte
	err  *Error
}

func (s *Script) check(text []byte) error {
	c := &checker{text: text}
	if len(s.Branches) == 0 && len(s.Steps) == 0 {
		c.wrong("$", "nothing to play: give it steps or branches")
	}
	c.steps("$", s.Steps)
	for i, b := range s.Branches {
		at := fmt.Sprintf("$.branches[%d]", i)
		if len(b.Steps) == 0 {
			c.wrong(at, "the branch has no steps")
		}
		c.steps(at, b.Steps)
	}
	if c.err != nil {
		return c.err
	}
	return nil
}

func (c *checker) steps(at string, steps []Step) {
	for i, s := range steps {
		c.step(fmt.Sprintf("%s.steps[%d]", at, i), s)
	}
}

var finishes = []event.FinishReason{"", event.FinishStop, event.FinishToolCalls, event.FinishLength, event.FinishFilter}

func (c *checker) step(at string, s Step) {
	if s.Text.empty() && s.Reasoning.empty() && len(s.Calls) == 0 && s.Fail == nil {
		c.wrong(at, "the step says nothing: give it text, reasoning, calls or fail")
	}
	if !slices.Contains(finishes, s.Finish) {
		c.wrong(at+".finish", "finish %q is none of stop, tool_calls, length, content_filter", s.Finish)
	}
	for i, call := range s.Calls {
		if call.Name.empty() {
			c.wrong(fmt.Sprintf("%s.calls[%d]", at, i), "the call has no name")
		}
	}
	if f := s.Fail; f != nil && !slices.Contains([]string{failError, failStall, failTruncate, failRefuse}, f.Kind) {
		c.wrong(at+".fail", "kind %q is none of error, stall, truncate, refuse", f.Kind)
	}
}

// wrong keeps the first problem, with the line of its YAML path.
func (c *checker) wrong(at, format string, args ...any) {
	if c.err != nil {
		return
	}
	c.err = &Error{Message: fmt.Sprintf(format, args...)}
	path, err := yaml.PathString(at)
	if err != nil {
		return
	}
	file, err := parse(c.text)
	if err != nil {
		return
	}
	if node, err := path.FilterFile(file); err == nil && node != nil {
		c.err.Line, c.err.Column = place(node)
	}
}
