package event

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// PartType names what a Part is.
type PartType string

// Part types. Text, reasoning and tool calls stand in messages; text, json,
// file, image, audio and resource in tool results; user messages also carry
// file, image and audio.
const (
	PartText      PartType = "text"
	PartReasoning PartType = "reasoning"
	PartToolCall  PartType = "tool_call"
	PartFile      PartType = "file"
	PartImage     PartType = "image"
	PartAudio     PartType = "audio"
	PartJSON      PartType = "json"
	PartResource  PartType = "resource"
)

// A Part is one piece of a message or of a tool's result.
type Part struct {
	Type        PartType        `json:"type"`
	ReasoningID string          `json:"reasoning_id,omitempty"`
	Text        string          `json:"text,omitempty"`
	Signature   string          `json:"signature,omitempty"` // of reasoning, opaque
	CallID      string          `json:"call_id,omitempty"`
	ArtifactID  string          `json:"artifact_id,omitempty"`
	URI         string          `json:"uri,omitempty"`
	Name        string          `json:"name,omitempty"`
	MediaType   string          `json:"media_type,omitempty"`
	Bytes       int64           `json:"bytes,omitempty"`
	URL         string          `json:"url,omitempty"`
	Value       json.RawMessage `json:"value,omitempty"`
	Internal    bool            `json:"internal,omitempty"`
	Streaming   bool            `json:"streaming,omitempty"` // in a fold: reasoning that has not ended

	growing []byte // in a fold: what Text has gained since settle
}

// TextPart is the commonest part.
func TextPart(text string) Part { return Part{Type: PartText, Text: text} }

// TextOf is the text of a message, as far as clients see it.
func TextOf(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Type == PartText && !p.Internal {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// Values are the parts of a fold's message as its events have them.
func Values(of []*Part) []Part {
	parts := make([]Part, len(of))
	for i, p := range of {
		parts[i] = *p
	}
	return parts
}

// ArtifactPath begins the URL of each artifact.
const ArtifactPath = "/artifacts/"

// ArtifactPart refers to an artifact.
func ArtifactPart(id, name, mediaType string, bytes int64) Part {
	return Part{Type: PartTypeOf(mediaType), ArtifactID: id, Name: name, MediaType: mediaType, Bytes: bytes, URL: ArtifactPath + id}
}

// PartTypeOf is what a file of a media type is.
func PartTypeOf(mediaType string) PartType {
	switch kind, _, _ := strings.Cut(mediaType, "/"); kind {
	case "image":
		return PartImage
	case "audio":
		return PartAudio
	}
	return PartFile
}

// TextHash is the sha256 of message.completed: over its text parts, joined.
func TextHash(parts []Part) string {
	h := sha256.New()
	for _, p := range parts {
		if p.Type == PartText {
			h.Write([]byte(p.Text))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ArgsHash is the args_sha256 of approval.requested: it binds a decision to the
// arguments that it is about, as the log shows them.
func ArgsHash(args string) string {
	sum := sha256.Sum256([]byte(args))
	return hex.EncodeToString(sum[:])
}

// Data of the session and run events.
type (
	SessionCreatedData struct {
		Agent    string          `json:"agent"`
		Metadata json.RawMessage `json:"metadata,omitempty"`
	}
	SessionClaimedData struct {
		Worker  string `json:"worker"`
		Attempt int    `json:"attempt"` // claims of this session so far
	}
	SessionReleasedData struct {
		Worker string `json:"worker"`
		Reason string `json:"reason,omitempty"` // drain, no_agent: the run goes on elsewhere
	}
	// RunQueuedData keeps all of an invoke that cannot start yet: the log, not
	// the inbox, is where it waits.
	RunQueuedData struct {
		Agent     string         `json:"agent"`
		CommandID string         `json:"command_id"`
		Messages  []InputMessage `json:"messages"`
		Resumes   string         `json:"resumes,omitempty"`
		Config    *RunConfig     `json:"config,omitempty"`
	}
	RunStartedData struct {
		Agent        string     `json:"agent"`
		CommandID    string     `json:"command_id,omitempty"`
		Attempt      int        `json:"attempt"`
		ParentRunID  string     `json:"parent_run_id,omitempty"`
		ParentCallID string     `json:"parent_call_id,omitempty"`
		Resumes      string     `json:"resumes,omitempty"` // the run it goes on from
		Traceparent  string     `json:"traceparent,omitempty"`
		Config       *RunConfig `json:"config,omitempty"`
	}
	RunRecoveredData struct {
		Attempt int `json:"attempt"`
		FromSeq Seq `json:"from_seq"` // last event before the takeover
	}
	RunStatusData struct {
		Status   Status `json:"status"`
		Previous Status `json:"previous"`
		Reason   string `json:"reason,omitempty"`
		// ExpiresAt is when a run that waits for somebody goes on without.
		ExpiresAt *Time `json:"expires_at,omitempty"`
		// Raised is what a paused run was given besides, when it goes on.
		Raised *Limits `json:"raised,omitempty"`
	}
	RunOutput struct {
		MessageID string `json:"message_id,omitempty"`
	}
	RunCompletedData struct {
		FinishReason FinishReason `json:"finish_reason"`
		Output       RunOutput    `json:"output"`
		Usage        Usage        `json:"usage"`
		// SteeredInto is the run that took this one's messages.
		SteeredInto string `json:"steered_into,omitempty"`
	}
	RunFailedData struct {
		Code      Code   `json:"code"`
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
		Usage     *Usage `json:"usage,omitempty"`
	}
	RunCancelledData struct {
		By     string `json:"by"`
		Reason string `json:"reason,omitempty"`
		Usage  *Usage `json:"usage,omitempty"`
	}
	CommandIgnoredData struct {
		CommandID string `json:"command_id"`
		Kind      string `json:"kind"`
		Reason    string `json:"reason"`
	}
	BudgetExceededData struct {
		Kind  string  `json:"kind"` // steps, tool_calls, tokens, cost_usd, wall
		Limit float64 `json:"limit"`
		Used  float64 `json:"used"`
		Scope string  `json:"scope,omitempty"` // session: the limit is of all its runs together
	}
	CustomData struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value,omitempty"`
	}
	RawData struct {
		Source string          `json:"source"`
		Event  json.RawMessage `json:"event"`
	}
)

// Data of the step, message and reasoning events.
type (
	StepStartedData struct {
		Step  int    `json:"step"` // 1, 2, … within the run
		Model string `json:"model"`
		// Fallback is 0 for the agent's own model, 1, 2, … for those after it.
		Fallback int `json:"fallback,omitempty"`
		// Reserved is what the request is thought to cost before any answer; it
		// is counted for attempts of which nobody tells the true cost.
		Reserved *Reserved `json:"reserved,omitempty"`
	}
	Reserved struct {
		Tokens  int64   `json:"tokens,omitempty"`
		CostUSD float64 `json:"cost_usd,omitempty"`
	}
	StepCompletedData struct {
		Step         int          `json:"step"`
		FinishReason FinishReason `json:"finish_reason"`
		Usage        Usage        `json:"usage"`
		// Fallback says which model the next step asks, if another one.
		Fallback int `json:"fallback,omitempty"`
	}
	MessageStartedData struct {
		MessageID string `json:"message_id"`
		Role      Role   `json:"role"`
		Index     int    `json:"index"` // among the session's messages that stand
	}
	TextDeltaData struct {
		MessageID string `json:"message_id"`
		Delta     string `json:"delta"`
	}
	MessageCompletedData struct {
		MessageID string `json:"message_id"`
		Role      Role   `json:"role"`
		Index     int    `json:"index"`
		Parts     []Part `json:"parts"`
		SHA256    string `json:"sha256"` // TextHash of parts
	}
	MessageDiscardedData struct {
		MessageID string `json:"message_id"`
		Reason    string `json:"reason"`
		Retry     int    `json:"retry,omitempty"` // the attempt that follows: 1, 2, …
	}
	ReasoningStartedData struct {
		ReasoningID string `json:"reasoning_id"`
		Index       int    `json:"index"` // within its message
	}
	ReasoningDeltaData struct {
		ReasoningID string `json:"reasoning_id"`
		Delta       string `json:"delta"`
	}
	ReasoningCompletedData struct {
		ReasoningID string `json:"reasoning_id"`
		Index       int    `json:"index"`
		Text        string `json:"text"`
		Signature   string `json:"signature,omitempty"`
	}
)

// Data of the tool events. Args is the model's raw text, never re-encoded.
type (
	ToolStartedData struct {
		CallID    string   `json:"call_id"`
		Name      string   `json:"name"`
		Index     int      `json:"index"` // among the calls of its message
		MessageID string   `json:"message_id"`
		Executor  Executor `json:"executor"`
	}
	ToolArgsDeltaData struct {
		CallID string `json:"call_id"`
		Delta  string `json:"delta"`
	}
	ToolArgsData struct {
		CallID string `json:"call_id"`
		Name   string `json:"name"`
		Index  int    `json:"index"`
		Args   string `json:"args"`
		// Redacted: the logged arguments are not what the tool gets, so the
		// call cannot be repeated from the log.
		Redacted bool `json:"redacted,omitempty"`
	}
	ToolRunningData struct {
		CallID         string `json:"call_id"`
		Attempt        int    `json:"attempt"`
		IdempotencyKey string `json:"idempotency_key"`  // the same in every attempt
		Reason         string `json:"reason,omitempty"` // why it is called again
	}
	Progress struct {
		Progress float64 `json:"progress"`
		Total    float64 `json:"total,omitempty"`
		Message  string  `json:"message,omitempty"`
	}
	ToolProgressData struct {
		CallID string `json:"call_id"`
		Progress
	}
	ToolCompletedData struct {
		CallID     string          `json:"call_id"`
		Name       string          `json:"name"`
		Index      int             `json:"index"`
		Args       string          `json:"args"`
		Content    []Part          `json:"content"`
		Structured json.RawMessage `json:"structured,omitempty"`
		Truncated  bool            `json:"truncated,omitempty"` // Artifact holds the whole
		Artifact   *Part           `json:"artifact,omitempty"`
	}
	ToolFailedData struct {
		CallID    string  `json:"call_id"`
		Name      string  `json:"name"`
		Index     int     `json:"index"`
		Args      string  `json:"args"`
		Code      Code    `json:"code"`
		Message   string  `json:"message"`
		Outcome   Outcome `json:"outcome"`
		Content   []Part  `json:"content,omitempty"`
		Truncated bool    `json:"truncated,omitempty"`
		Artifact  *Part   `json:"artifact,omitempty"`
	}
	ApprovalRequestedData struct {
		CallID     string `json:"call_id"`
		ArgsSHA256 string `json:"args_sha256"`
		ExpiresAt  Time   `json:"expires_at"`
		Reason     Code   `json:"reason,omitempty"` // CodeInterrupted: a worker was lost while the tool ran, and may it run again?
	}
	ApprovalResolvedData struct {
		CallID   string   `json:"call_id"`
		Decision Decision `json:"decision"`
		By       string   `json:"by"`
		Reason   string   `json:"reason,omitempty"`
	}
)

// Data of the artifact, state and activity events.
type (
	ArtifactStartedData struct {
		ArtifactID string `json:"artifact_id"`
		CallID     string `json:"call_id,omitempty"`
		Name       string `json:"name"`
		MediaType  string `json:"media_type"`
	}
	ArtifactProgressData struct {
		ArtifactID string `json:"artifact_id"`
		Bytes      int64  `json:"bytes"` // so far
	}
	ArtifactCompletedData struct {
		ArtifactID string `json:"artifact_id"`
		CallID     string `json:"call_id,omitempty"`
		Name       string `json:"name"`
		MediaType  string `json:"media_type"`
		Bytes      int64  `json:"bytes"`
		SHA256     string `json:"sha256"`
		URL        string `json:"url"`
	}
	StateSnapshotData struct {
		State json.RawMessage `json:"state"`
	}
	StateDeltaData struct {
		Patch json.RawMessage `json:"patch"` // RFC 6902
	}
	ActivityData struct {
		ActivityID string          `json:"activity_id"`
		Kind       string          `json:"kind"`
		Content    json.RawMessage `json:"content"`
	}
	ActivityDeltaData struct {
		ActivityID string          `json:"activity_id"`
		Patch      json.RawMessage `json:"patch"` // RFC 6902
	}
)
