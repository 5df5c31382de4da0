package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"text/template"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/redact"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/tool"
)

// An Agent can run: its model, its tools and its limits. It is safe for
// concurrent use by many runs.
type Agent struct {
	Definition Definition
	Model      model.Model
	Fallback   []model.Model // as in the definition
	Sources    []tool.Source
	// Remote answers in the place of a model and of tools, if it is set.
	Remote remote.Agent
	system *template.Template
}

// New puts an agent together. The definition's system prompt must be a valid
// template.
func New(d Definition, m model.Model, sources []tool.Source) (*Agent, error) {
	t, err := template.New("system").Option("missingkey=error").Parse(d.System)
	if err != nil {
		return nil, fmt.Errorf("agent %s: system prompt: %w", d.Name, err)
	}
	return &Agent{Definition: d, Model: m, Sources: sources, system: t}, nil
}

// NewRemote puts an agent together that lives elsewhere. Of its definition only
// tools of the client, what clients see, and limits count.
func NewRemote(d Definition, r remote.Agent, sources []tool.Source) *Agent {
	return &Agent{Definition: d, Remote: r, Sources: sources}
}

// Close stops the agent's tool servers, or lets go of the agent that lives
// elsewhere.
func (a *Agent) Close() error {
	var errs []error
	if a.Remote != nil {
		errs = append(errs, a.Remote.Close())
	}
	for _, s := range a.Sources {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Prompt is what a system prompt template can use.
type Prompt struct {
	Agent   string
	Session string
	Run     string
	Date    string // of the run's start, 2006-01-02
	Time    string // of the run's start, RFC 3339
}

func (a *Agent) prompt(s *event.Session, run *event.Run) (string, error) {
	at := run.StartedAt.UTC()
	var b bytes.Buffer
	err := a.system.Execute(&b, Prompt{
		Agent: a.Definition.Name, Session: s.SessionID, Run: run.RunID,
		Date: at.Format(time.DateOnly), Time: at.Format(time.RFC3339),
	})
	if err != nil {
		return "", &Failure{Code: event.CodeBadRequest, Message: fmt.Sprintf("system prompt of agent %s: %v", a.Definition.Name, err)}
	}
	return b.String(), nil
}

// A Journal is the log of the session that a run writes to, held by its owner.
// It is safe for concurrent use.
type Journal interface {
	// Append takes events in order, all or none, and folds them. An error means
	// that this worker writes no more: it is fenced, or one event is too large
	// (eventlog.ErrTooLarge).
	Append(events ...event.Event) error
	// AppendIf appends if the fold still stands at seq, and tells whether.
	AppendIf(seq event.Seq, events ...event.Event) (bool, error)
	// Sync waits until everything appended is committed.
	Sync(ctx context.Context) error
	// Own confirms shortly before a side effect that the session is still ours.
	Own(ctx context.Context) error
	// View is the fold as it stands.
	View() *event.Session
	// Look shows the fold itself, where a copy of the whole would cost more than
	// what is looked for. look keeps nothing of it but what it copies, and must
	// not append.
	Look(look func(*event.Session))
}

// Artifacts keeps what tools produce. Create returns a writer for a new
// artifact; nothing is visible before its commit.
type Artifacts interface {
	Create(ctx context.Context, artifactID, name, mediaType string) (Blob, error)
	Open(ctx context.Context, artifactID string) (Reader, error)
}

// A Blob is an artifact being written.
type Blob interface {
	Write(p []byte) (int, error)
	Commit(ctx context.Context) (bytes int64, sha256 string, err error)
	Abort()
}

// A Reader is an artifact being read.
type Reader interface {
	Read(p []byte) (int, error)
	Seek(offset int64, whence int) (int64, error)
	Close() error
	About() (name, mediaType string, bytes int64)
}

// A Cancelled is the cause of a context that a cancel command has ended.
type Cancelled struct {
	By, Reason, CommandID string
}

func (c *Cancelled) Error() string { return "cancelled by " + c.By }

// A Failure ends the run as failed.
type Failure struct {
	Code      event.Code
	Message   string
	Retryable bool
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }

// Tunables of the loop; the zero value has the defaults.
type Tunables struct {
	Window   time.Duration // text is gathered for so long, the first piece not at all; default 20 ms
	Retries  int           // of a model call that failed, default 4
	Backoff  time.Duration // before the first retry, doubled each time, default 500 ms
	Parallel int           // tool calls of one step at once, default 16
	ToolWait time.Duration // for a tool server to be there, default 15 s
}

func (t *Tunables) setDefaults() {
	t.Window = first(t.Window, 20*time.Millisecond)
	t.Retries = first(t.Retries, 4)
	t.Backoff = first(t.Backoff, 500*time.Millisecond)
	t.Parallel = first(t.Parallel, 16)
	t.ToolWait = first(t.ToolWait, 15*time.Second)
}

// Deps is what a run needs besides its agent.
type Deps struct {
	Journal   Journal
	Artifacts Artifacts
	Redactor  *redact.Redactor
	Tenant    string
	Tunables  Tunables
	Agents    map[string]*Agent // that this one may call
}
