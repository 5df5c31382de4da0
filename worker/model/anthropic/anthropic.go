// Package anthropic speaks the Anthropic Messages protocol.
package anthropic

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/internal/wire"
	"github.com/runlog-dev/runlog/worker/model"
)

const defaultURL = "https://api.anthropic.com"

// defaultMaxTokens is the limit of an answer where nobody says one: the protocol
// demands a number.
const defaultMaxTokens = 8192

// A Model is a model behind the Messages API. It is safe for concurrent use.
type Model struct {
	endpoint model.Endpoint
	conn     *wire.Conn
	service  anthropic.MessageService
	caches   bool // the server keeps the conversation so far for the next step
}

// New returns the model of an endpoint whose BaseURL ends before /v1/messages
// (a trailing /v1 is taken off).
func New(e model.Endpoint) (*Model, error) {
	e, err := e.Check(defaultURL)
	if err != nil {
		return nil, err
	}
	e.BaseURL = strings.TrimSuffix(strings.TrimSuffix(e.BaseURL, "/"), "/v1")
	m := &Model{endpoint: e, conn: wire.New(e), caches: e.BaseURL == defaultURL}
	opts := []option.RequestOption{
		option.WithBaseURL(e.BaseURL + "/"),
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
	m.service = anthropic.NewMessageService(opts...)
	return m, nil
}

// Stream implements model.Model.
func (m *Model) Stream(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
	call := m.conn.Begin(ctx)
	defer call.Close()
	r := newReader(wire.NewAnswer(req, emit), call)
	// The bytes as they are: as params, the SDK would encode them once more.
	body := option.WithRequestBody("application/json", m.body(req))
	stream := m.service.NewStreaming(call.Context(), anthropic.MessageNewParams{}, body)
	if err := stream.Err(); err != nil {
		return model.Result{}, call.Fail(err)
	}
	defer func() { _ = stream.Close() }()
	for r.answer.Err() == nil && !r.stopped && stream.Next() {
		if err := r.read([]byte(stream.Current().RawJSON())); err != nil {
			return model.Result{}, call.Fail(err)
		}
	}
	if err := r.answer.Err(); err != nil {
		return model.Result{}, err
	}
	if err := stream.Err(); err != nil {
		return model.Result{}, call.Fail(reported(err))
	}
	return r.end()
}

func (m *Model) body(req model.Request) []byte {
	system, messages := req.Session.AnthropicView(event.View{System: req.System, RunID: req.RunID})
	body := map[string]any{"model": m.endpoint.Name, "max_tokens": cmp.Or(req.MaxTokens, m.endpoint.MaxTokens, defaultMaxTokens)}
	if system != "" {
		body["system"] = system
	}
	if m.caches { // others that speak the protocol may not know the member
		body["cache_control"] = map[string]string{"type": "ephemeral"}
	}
	if m.endpoint.Temperature != nil {
		body["temperature"] = *m.endpoint.Temperature
	}
	if len(req.Tools) > 0 {
		body["tools"] = tools(req.Tools)
	}
	maps.Copy(body, m.endpoint.Extra)
	return wire.Body(body, "messages", messages)
}

func tools(specs []model.ToolSpec) []any {
	list := make([]any, len(specs))
	for i, t := range specs {
		tool := map[string]any{"name": event.WireName(t.Name), "input_schema": t.Schema()}
		if t.Description != "" {
			tool["description"] = t.Description
		}
		list[i] = tool
	}
	return list
}

// reported makes an error of the stream's own error event, which the SDK gives
// as an API error.
func reported(err error) error {
	var e *anthropic.Error
	if errors.As(err, &e) {
		return wire.InStream([]byte(e.RawJSON()))
	}
	return err
}
