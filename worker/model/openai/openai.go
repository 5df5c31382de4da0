// Package openai speaks to any server of the chat-completions protocol: OpenAI,
// vLLM, Ollama, llama.cpp and the like by their base URL.
package openai

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/internal/wire"
	"github.com/runlog-dev/runlog/worker/model"
)

const defaultURL = "https://api.openai.com/v1"

// A Model is a chat-completions model. It is safe for concurrent use. What its
// server refuses of the request (stream_options, the name of the token limit) it
// leaves out from then on.
type Model struct {
	endpoint model.Endpoint
	conn     *wire.Conn
	service  openai.ChatCompletionService
	noUsage  atomic.Bool // the server refuses stream_options
	newLimit atomic.Bool // it wants max_completion_tokens, not max_tokens
}

// New returns the model of an endpoint whose BaseURL ends before
// /chat/completions.
func New(e model.Endpoint) (*Model, error) {
	e, err := e.Check(defaultURL)
	if err != nil {
		return nil, err
	}
	m := &Model{endpoint: e, conn: wire.New(e)}
	if u, err := url.Parse(e.BaseURL); err == nil {
		m.newLimit.Store(u.Host == "api.openai.com")
	}
	opts := []option.RequestOption{
		option.WithBaseURL(strings.TrimSuffix(e.BaseURL, "/") + "/"),
		option.WithHTTPClient(m.conn.Client()),
		option.WithMaxRetries(0),
	}
	if e.APIKey != "" {
		opts = append(opts, option.WithAPIKey(e.APIKey))
	}
	for k, v := range e.Headers {
		opts = append(opts, option.WithHeader(k, v))
	}
	// The service, not the client: that one reads keys from the environment.
	m.service = openai.NewChatCompletionService(opts...)
	return m, nil
}

// Stream implements model.Model.
func (m *Model) Stream(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
	call := m.conn.Begin(ctx)
	defer call.Close()
	stream := m.open(call, req)
	defer func() { _ = stream.Close() }()
	r := newReader(wire.NewAnswer(req, emit), call)
	for r.answer.Err() == nil && stream.Next() {
		if err := r.read([]byte(stream.Current().RawJSON())); err != nil {
			return model.Result{}, call.Fail(err)
		}
	}
	if err := r.answer.Err(); err != nil {
		return model.Result{}, err
	}
	if err := stream.Err(); err != nil && (!r.finished() || ctx.Err() != nil) {
		return model.Result{}, call.Fail(reported(err))
	}
	return r.end()
}

// open sends the request, again where the server refuses a member that it can
// do without.
func (m *Model) open(call *wire.Call, req model.Request) *ssestream.Stream[openai.ChatCompletionChunk] {
	messages := req.Session.OpenAIView(event.View{System: req.System, RunID: req.RunID, Reasoning: m.endpoint.SendReasoning})
	for {
		// The bytes as they are: as params, the SDK would encode them once more.
		body := option.WithRequestBody("application/json", wire.Body(m.body(req), "messages", messages))
		stream := m.service.NewStreaming(call.Context(), openai.ChatCompletionNewParams{}, body)
		if !m.yields(stream.Err()) {
			return stream
		}
		_ = stream.Close()
	}
}

// yields learns from a refusal what to leave out; true at most once for each.
func (m *Model) yields(err error) bool {
	switch {
	case err == nil:
		return false
	case wire.Refused(err, "max_completion_tokens"):
		return m.newLimit.CompareAndSwap(false, true)
	case wire.Refused(err, "stream_options", "include_usage"):
		return m.noUsage.CompareAndSwap(false, true)
	}
	return false
}

// body is the request without its messages.
func (m *Model) body(req model.Request) map[string]any {
	body := map[string]any{"model": m.endpoint.Name}
	if !m.noUsage.Load() {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	if m.endpoint.Temperature != nil {
		body["temperature"] = *m.endpoint.Temperature
	}
	limit := "max_tokens"
	if m.newLimit.Load() {
		limit = "max_completion_tokens"
	}
	if n := cmp.Or(req.MaxTokens, m.endpoint.MaxTokens); n > 0 {
		body[limit] = n
	}
	if len(req.Tools) > 0 {
		body["tools"] = tools(req.Tools)
	}
	maps.Copy(body, m.endpoint.Extra)
	return body
}

func tools(specs []model.ToolSpec) []any {
	list := make([]any, len(specs))
	for i, t := range specs {
		f := map[string]any{"name": event.WireName(t.Name), "parameters": t.Schema()}
		if t.Description != "" {
			f["description"] = t.Description
		}
		list[i] = map[string]any{"type": "function", "function": f}
	}
	return list
}

// reported makes an error of the stream's own error event.
func reported(err error) error {
	var e *ssestream.StreamError
	if errors.As(err, &e) {
		return wire.InStream(bytes.TrimSpace(e.Event.Data))
	}
	return err
}
