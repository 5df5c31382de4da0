package event

// Type names what happened. Openers and closers carry an ordinal index, closers
// the full content too.
type Type string

// The event types of version 1.
const (
	SessionCreated  Type = "session.created"
	SessionClaimed  Type = "session.claimed"  // internal
	SessionReleased Type = "session.released" // internal

	RunQueued    Type = "run.queued"
	RunStarted   Type = "run.started"
	RunRecovered Type = "run.recovered"
	RunStatus    Type = "run.status"
	RunCompleted Type = "run.completed"
	RunFailed    Type = "run.failed"
	RunCancelled Type = "run.cancelled"

	StepStarted   Type = "step.started"
	StepCompleted Type = "step.completed"

	MessageStarted   Type = "message.started"
	TextDelta        Type = "text.delta"
	MessageCompleted Type = "message.completed"
	MessageDiscarded Type = "message.discarded"

	ReasoningStarted   Type = "reasoning.started"
	ReasoningDelta     Type = "reasoning.delta"
	ReasoningCompleted Type = "reasoning.completed"

	ToolStarted   Type = "tool.started"
	ToolArgsDelta Type = "tool.args.delta"
	ToolArgs      Type = "tool.args"
	ToolRunning   Type = "tool.running"
	ToolProgress  Type = "tool.progress"
	ToolCompleted Type = "tool.completed"
	ToolFailed    Type = "tool.failed"

	ApprovalRequested Type = "approval.requested"
	ApprovalResolved  Type = "approval.resolved"

	ArtifactStarted   Type = "artifact.started"
	ArtifactProgress  Type = "artifact.progress"
	ArtifactCompleted Type = "artifact.completed"

	StateSnapshot    Type = "state.snapshot"
	StateDelta       Type = "state.delta"
	ActivitySnapshot Type = "activity.snapshot"
	ActivityDelta    Type = "activity.delta"

	BudgetExceeded Type = "budget.exceeded"
	CommandIgnored Type = "command.ignored" // internal
	Custom         Type = "custom"
	Raw            Type = "raw" // internal
)

// Types lists every type of version 1, in the order of their definition.
var Types = []Type{
	SessionCreated, SessionClaimed, SessionReleased,
	RunQueued, RunStarted, RunRecovered, RunStatus, RunCompleted, RunFailed, RunCancelled,
	StepStarted, StepCompleted,
	MessageStarted, TextDelta, MessageCompleted, MessageDiscarded,
	ReasoningStarted, ReasoningDelta, ReasoningCompleted,
	ToolStarted, ToolArgsDelta, ToolArgs, ToolRunning, ToolProgress, ToolCompleted, ToolFailed,
	ApprovalRequested, ApprovalResolved,
	ArtifactStarted, ArtifactProgress, ArtifactCompleted,
	StateSnapshot, StateDelta, ActivitySnapshot, ActivityDelta,
	BudgetExceeded, CommandIgnored, Custom, Raw,
}

// Terminal reports whether the event ends its run.
func (t Type) Terminal() bool {
	return t == RunCompleted || t == RunFailed || t == RunCancelled
}

// Status is where a run stands.
type Status string

// Run status words.
const (
	Pending         Status = "pending"
	Running         Status = "running"
	WaitingTool     Status = "waiting_tool"
	WaitingApproval Status = "waiting_approval"
	Completed       Status = "completed"
	Failed          Status = "failed"
	Cancelled       Status = "cancelled"
)

// Terminal reports whether a run with this status is over.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Cancelled }

// Status words of messages, tool calls and artifacts that runs do not share.
const (
	Streaming Status = "streaming"
	Writing   Status = "writing"
	Abandoned Status = "abandoned"
)

// FinishReason says why a step or run ended.
type FinishReason string

// Finish reasons.
const (
	FinishStop      FinishReason = "stop"
	FinishToolCalls FinishReason = "tool_calls"
	FinishLength    FinishReason = "length"
	FinishFilter    FinishReason = "content_filter"
	FinishBudget    FinishReason = "budget"
	FinishStopped   FinishReason = "stopped"
)

// Code is the machine-readable reason in run.failed, tool.failed and problems.
type Code string

// Error codes.
const (
	CodeBadRequest     Code = "bad_request"
	CodeUnauthorized   Code = "unauthorized"
	CodeForbidden      Code = "forbidden"
	CodeNotFound       Code = "not_found"
	CodeConflict       Code = "conflict"
	CodeMismatch       Code = "idempotency_mismatch"
	CodeTooLarge       Code = "payload_too_large"
	CodeBadCursor      Code = "bad_cursor"
	CodeCursorAhead    Code = "cursor_ahead"
	CodeUnknownDialect Code = "unknown_dialect"
	CodeUnsupported    Code = "unsupported"
	CodeRateLimited    Code = "rate_limited"
	CodeOverloaded     Code = "overloaded"
	CodeUnavailable    Code = "unavailable"
	CodeModelError     Code = "model_error"
	CodeModelTruncated Code = "model_truncated"
	CodeModelRefused   Code = "model_refused"
	CodeModelTimeout   Code = "model_timeout"
	CodeToolError      Code = "tool_error"
	CodeToolTimeout    Code = "tool_timeout"
	CodeToolMissing    Code = "tool_unavailable"
	CodeInterrupted    Code = "interrupted"
	CodeBudget         Code = "budget_exceeded"
	CodeExpired        Code = "expired"
	CodePoisoned       Code = "poisoned"
	CodeInternal       Code = "internal"
)

// Outcome says how a failed tool call failed.
type Outcome string

// Outcomes of tool.failed. Unknown means that the tool may or may not have had
// its effect; the model is told so.
const (
	OutcomeFailed    Outcome = "failed"
	OutcomeUnknown   Outcome = "unknown"
	OutcomeDenied    Outcome = "denied"
	OutcomeCancelled Outcome = "cancelled"
)

// Decision about a tool call that needs approval.
type Decision string

// Decisions. One that nobody made in time is a denial by the expiry.
const (
	Approved Decision = "approve"
	Denied   Decision = "deny"
)

// Executor says who runs a tool call.
type Executor string

// Executors.
const (
	ByWorker Executor = "worker"
	ByClient Executor = "client"
	ByRemote Executor = "remote"
)

// Role of a message.
type Role string

// Roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleSystem    Role = "system"
)
