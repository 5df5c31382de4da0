// Package demotools is a small MCP server whose tools behave in the ways that
// tools do: one is slow and reports progress, one is read only, one fails, one
// answers with megabytes, one sleeps in silence, and one kills its server.
//
// Set DEMO_TOOLS_LEDGER to a file to have every invocation recorded in it, so
// that side effects can be counted after a crash.
package demotools

import (
	"context"
	"io"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Main serves the tools over in and out, one JSON-RPC message a line, until in
// ends or ctx does; running calls are cancelled then.
func Main(ctx context.Context, in io.Reader, out io.Writer) error {
	// The SDK waits for running calls when its context ends, but cancels them
	// when its input does.
	input, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, in)
		feed.CloseWithError(err)
	}()
	stop := context.AfterFunc(ctx, func() { feed.Close() })
	defer stop()
	return New().Run(context.WithoutCancel(ctx), &mcp.IOTransport{Reader: input, Writer: noClose{out}})
}

// New is the server without a transport, to be served over HTTP for example.
func New() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "demo-tools", Version: "1"}, &mcp.ServerOptions{
		Logger: slog.New(slog.DiscardHandler),
	})
	no := new(bool)
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: no}
	add(s, "count_slowly", "Counts from 1 to n, pausing delay_ms before each step, and reports progress.",
		&mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: no, OpenWorldHint: no}, countSlowly)
	add(s, "lookup", "Looks up a planet by name and returns its figures.", readOnly, lookup)
	add(s, "fail", "Always fails, with the given message.", readOnly, fail)
	add(s, "big", "Returns the given number of bytes of readable text (default 3000000).", readOnly, big)
	add(s, "sleep", "Sleeps for ms milliseconds without a word. Not idempotent.",
		&mcp.ToolAnnotations{DestructiveHint: no, OpenWorldHint: no}, sleep)
	add(s, "die", "Ends the process of the tools before it can answer.", &mcp.ToolAnnotations{OpenWorldHint: no}, die)
	return s
}

// add registers a tool whose invocations are recorded in the ledger. A tool
// without structured output has Out = any.
func add[In, Out any](s *mcp.Server, name, description string, hints *mcp.ToolAnnotations, h mcp.ToolHandlerFor[In, Out]) {
	t := &mcp.Tool{Name: name, Description: description, Annotations: hints}
	mcp.AddTool(s, t, func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		if err := record(req, name); err != nil {
			var none Out
			return nil, none, err
		}
		res, out, err := h(ctx, req, in)
		if ctx.Err() != nil {
			slog.Info("call cancelled by the client", "tool", name, "key", idempotencyKey(req))
		}
		return res, out, err
	})
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

type noClose struct{ io.Writer }

func (noClose) Close() error { return nil }
