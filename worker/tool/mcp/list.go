package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// maxTools bounds the list of one server.
const maxTools = 1000

// list returns the tools, asking the server if its list may have changed.
func (l *link) list(ctx context.Context) ([]tool.Tool, error) {
	select {
	case l.listing <- struct{}{}:
		defer func() { <-l.listing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !l.stale.Swap(false) {
		return slices.Clone(l.tools), nil
	}
	tools, err := l.fetch(ctx)
	if err != nil {
		l.stale.Store(true)
		return nil, err
	}
	l.tools = tools
	return slices.Clone(tools), nil
}

func (l *link) fetch(ctx context.Context) ([]tool.Tool, error) {
	s := l.server
	var tools []tool.Tool
	names := map[string]bool{}
	var seen []string
	for t, err := range l.session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if len(seen) == maxTools {
			return nil, fmt.Errorf("it offers more than %d tools", maxTools)
		}
		seen = append(seen, t.Name)
		if s.opt.Allow != nil && !slices.Contains(s.opt.Allow, t.Name) {
			continue
		}
		spec := s.spec(t)
		spec.Name = unused(spec.Name, names)
		tools = append(tools, &remote{server: s, name: t.Name, spec: spec})
	}
	for _, name := range s.opt.Allow {
		if !slices.Contains(seen, name) {
			s.log.Warn("mcp server has no such tool, though it is allowed", "tool", name, "has", strings.Join(seen, " "))
		}
	}
	return tools, nil
}

func (s *Server) spec(t *sdk.Tool) tool.Spec {
	spec := tool.Spec{
		Name:        tool.CleanName(s.opt.Prefix + t.Name),
		Description: t.Description,
		Parameters:  schema(t),
		OnCrash:     s.opt.OnCrash,
		Timeout:     s.opt.Timeout,
		Retries:     s.opt.Retries,
	}
	if spec.Description == "" {
		spec.Description = t.Title
	}
	if spec.OnCrash == "" {
		spec.OnCrash = onCrash(t.Annotations)
	}
	return spec
}

// onCrash trusts the server's hints: what only reads, or may be repeated, is.
func onCrash(hints *sdk.ToolAnnotations) tool.OnCrash {
	if hints != nil && (hints.ReadOnlyHint || hints.IdempotentHint) {
		return tool.Retry
	}
	return tool.Fail
}

// schema is the server's own text, so that properties keep their order. A
// server may leave properties out; model providers insist on them.
func schema(t *sdk.Tool) json.RawMessage {
	raw, _ := t.Meta[rawSchema].(string)
	text := []byte(raw)
	if !event.Valid(text) {
		text, _ = json.Marshal(t.InputSchema)
	}
	var object map[string]json.RawMessage
	if !event.Valid(text) || json.Unmarshal(text, &object) != nil || len(object) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	if _, ok := object["properties"]; ok {
		return text
	}
	return append([]byte(`{"properties":{},`), bytes.TrimLeft(text, " \t\r\n")[1:]...)
}

// unused makes a name differ from those before it.
func unused(name string, names map[string]bool) string {
	for n, base := 2, name; names[name]; n++ {
		suffix := fmt.Sprintf("_%d", n)
		name = base[:min(len(base), tool.MaxName-utf8.RuneCountInString(suffix))] + suffix
	}
	names[name] = true
	return name
}
