package event

// A Run of the session.
type Run struct {
	RunID        string       `json:"run_id"`
	TraceID      string       `json:"trace_id,omitempty"`
	Agent        string       `json:"agent"`
	ParentRunID  string       `json:"parent_run_id,omitempty"`
	ParentCallID string       `json:"parent_call_id,omitempty"`
	Resumes      string       `json:"resumes,omitempty"`
	Status       Status       `json:"status"`
	ExpiresAt    *Time        `json:"expires_at,omitempty"` // of the wait
	StartedAt    *Time        `json:"started_at,omitempty"`
	EndedAt      *Time        `json:"ended_at,omitempty"`
	FinishReason FinishReason `json:"finish_reason,omitempty"`
	Output       *RunOutput   `json:"output,omitempty"`
	Error        *RunError    `json:"error,omitempty"`
	By           string       `json:"by,omitempty"` // of a cancelled run
	Reason       string       `json:"reason,omitempty"`
	Usage        Usage        `json:"usage"`
	Book         *RunBook     `json:"book,omitempty"`
}

// RunBook is the worker's part of a run.
type RunBook struct {
	Attempt int          `json:"attempt,omitempty"`
	Step    int          `json:"step,omitempty"`    // the last one started
	InStep  bool         `json:"in_step,omitempty"` // it has not completed
	Answer  string       `json:"answer,omitempty"`  // the message it completed, if it did
	Finish  FinishReason `json:"finish,omitempty"`  // of the last step
	First   Seq          `json:"first,omitempty"`   // the run's first event
	Last    Seq          `json:"last,omitempty"`    // its terminal event
	Config  *RunConfig   `json:"config,omitempty"`

	Internal bool            `json:"internal,omitempty"` // a sub-agent's that clients do not see
	Once     map[string]Once `json:"once,omitempty"`     // steps that tools journaled
	Cut      *Cut            `json:"cut,omitempty"`      // of its requests
	Remote   *Remote         `json:"remote,omitempty"`   // of an agent that lives elsewhere
	Fallback int             `json:"fallback,omitempty"` // of the last step's model
	Vain     int             `json:"vain,omitempty"`     // steps that ended without an answer
	Reserved *Reserved       `json:"reserved,omitempty"` // of the step that is open
	Lost     Reserved        `json:"lost,omitzero"`      // by attempts that came to nothing
	// Exceeded is the budget that a paused run is out of, and Raised what was
	// added to its budgets so far.
	Exceeded *BudgetExceededData `json:"exceeded,omitempty"`
	Raised   Limits              `json:"raised,omitzero"`
	// WaitedMS is how long the run has waited for people, until Parked if it
	// does now.
	WaitedMS int64 `json:"waited_ms,omitempty"`
	Parked   *Time `json:"parked,omitempty"`
}

// ScopeSession marks a budget of all runs of a session together.
const ScopeSession = "session"

// Why an attempt of a worker that is gone was taken back.
const (
	TakenOver  = "worker_lost"
	HandedOver = "handed_over"
)

// lose counts what an attempt without a result is thought to have cost.
func (b *RunBook) lose() {
	if b.Reserved != nil {
		b.Lost.Tokens += b.Reserved.Tokens
		b.Lost.CostUSD += b.Reserved.CostUSD
	}
}

// waits counts the time that a run spends parked.
func (b *RunBook) waits(now Time, parked bool) {
	switch {
	case parked && b.Parked == nil:
		b.Parked = &now
	case !parked && b.Parked != nil:
		b.WaitedMS += now.Sub(b.Parked.Time).Milliseconds()
		b.Parked = nil
	}
}

func (r *Run) hidden() bool { return r.Book != nil && r.Book.Internal }

// Paused reports that the run waits for a larger budget.
func (r *Run) Paused() bool {
	return r.Book != nil && r.Book.Exceeded != nil && r.Status == WaitingApproval
}

// RunError says why a run failed.
type RunError struct {
	Code      Code   `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable,omitempty"`
}
