package agui

import (
	"encoding/json"
)

// A wireEvent is an AG-UI event with the members of all that are told on.
type wireEvent struct {
	Type            string          `json:"type"`
	MessageID       string          `json:"messageId"`
	Role            string          `json:"role"`
	Delta           json.RawMessage `json:"delta"` // a text, or a JSON Patch
	ToolCallID      string          `json:"toolCallId"`
	ToolCallName    string          `json:"toolCallName"`
	ParentMessageID string          `json:"parentMessageId"`
	Content         json.RawMessage `json:"content"`
	Snapshot        json.RawMessage `json:"snapshot"`
	Messages        []wireMessage   `json:"messages"`
	ActivityType    string          `json:"activityType"`
	Replace         *bool           `json:"replace"`
	Patch           json.RawMessage `json:"patch"`
	Name            string          `json:"name"`
	Value           json.RawMessage `json:"value"`
	Message         string          `json:"message"`
	Code            string          `json:"code"`
	Usage           []wireUsage     `json:"usage"`
	Outcome         *wireOutcome    `json:"outcome"`
	SubagentRunID   string          `json:"subagentRunId"`
	Metadata        struct {
		Retryable bool `json:"retryable"`
	} `json:"metadata"`
}

type (
	wireUsage struct {
		Input     int64 `json:"inputTokens"`
		Output    int64 `json:"outputTokens"`
		Reasoning int64 `json:"reasoningTokens"`
		Cached    int64 `json:"cachedInputTokens"`
	}
	wireOutcome struct {
		Type       string          `json:"type"`
		Interrupts []wireInterrupt `json:"interrupts"`
	}
	wireInterrupt struct {
		ID        string          `json:"id"`
		Reason    string          `json:"reason"`
		Message   string          `json:"message,omitempty"`
		CallID    string          `json:"toolCallId,omitempty"`
		Schema    json.RawMessage `json:"responseSchema,omitempty"`
		ExpiresAt string          `json:"expiresAt,omitempty"`
		Metadata  json.RawMessage `json:"metadata,omitempty"`
	}
	wireMessage struct {
		ID         string          `json:"id"`
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCalls  []call          `json:"toolCalls"`
		ToolCallID string          `json:"toolCallId"`
	}
)
