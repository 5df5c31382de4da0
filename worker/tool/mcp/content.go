package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"path"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// maxParts bounds the content of one result.
const maxParts = 256

// result makes the house's result of the server's. Text stays text; what is
// binary becomes an artifact.
func (t *remote) result(ctx context.Context, call tool.Call, res *sdk.CallToolResult) (tool.Result, error) {
	out := tool.Result{Failed: res.IsError, Structured: structured(res)}
	for i, c := range res.Content {
		if i == maxParts {
			rest := fmt.Sprintf("(%d more pieces of content were left out)", len(res.Content)-i)
			out.Content = append(out.Content, event.TextPart(rest))
			break
		}
		part, err := t.part(ctx, call, c, i)
		if err != nil {
			return tool.Result{}, fmt.Errorf("keep the content of tool %s: %w", t.spec.Name, err)
		}
		out.Content = append(out.Content, part)
	}
	if len(out.Content) == 0 && out.Structured != nil {
		out.Content = []event.Part{{Type: event.PartJSON, Value: out.Structured}}
	}
	return out, nil
}

// structured is the server's own text, so that its numbers keep their digits.
func structured(res *sdk.CallToolResult) json.RawMessage {
	if res.StructuredContent == nil {
		return nil
	}
	if raw, _ := res.Meta[rawStructured].(string); event.Valid([]byte(raw)) {
		return json.RawMessage(raw)
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return nil
	}
	return raw
}

func (t *remote) part(ctx context.Context, call tool.Call, c sdk.Content, i int) (event.Part, error) {
	switch c := c.(type) {
	case *sdk.TextContent:
		return event.TextPart(c.Text), nil
	case *sdk.ImageContent:
		return keep(ctx, call, t.fileName(i, c.MIMEType), c.MIMEType, c.Data)
	case *sdk.AudioContent:
		return keep(ctx, call, t.fileName(i, c.MIMEType), c.MIMEType, c.Data)
	case *sdk.ResourceLink:
		return linkPart(c), nil
	case *sdk.EmbeddedResource:
		return t.resourcePart(ctx, call, c.Resource, i)
	}
	return event.TextPart(fmt.Sprintf("(content of an unknown kind, %T, was left out)", c)), nil
}

func linkPart(c *sdk.ResourceLink) event.Part {
	part := event.Part{Type: event.PartResource, URI: c.URI, Name: c.Name, MediaType: c.MIMEType}
	if part.Name == "" {
		part.Name = c.Title
	}
	if c.Size != nil && *c.Size > 0 {
		part.Bytes = *c.Size
	}
	return part
}

func (t *remote) resourcePart(ctx context.Context, call tool.Call, r *sdk.ResourceContents, i int) (event.Part, error) {
	switch {
	case r == nil:
		return event.TextPart("(an empty resource)"), nil
	case r.Blob == nil:
		return event.TextPart(r.Text), nil
	}
	name := path.Base(r.URI)
	if name == "." || name == "/" {
		name = t.fileName(i, r.MIMEType)
	}
	return keep(ctx, call, name, r.MIMEType, r.Blob)
}

// keep writes an artifact and returns its part.
func keep(ctx context.Context, call tool.Call, name, mediaType string, data []byte) (event.Part, error) {
	if mediaType == "" {
		mediaType = "application/octet-stream"
	}
	if call.Create == nil {
		return event.TextPart(fmt.Sprintf("(%s of %d bytes was left out)", mediaType, len(data))), nil
	}
	w, err := call.Create(ctx, name, mediaType)
	if err != nil {
		return event.Part{}, err
	}
	if _, err := w.Write(data); err != nil {
		w.Abort()
		return event.Part{}, fmt.Errorf("write %s: %w", name, err)
	}
	return w.Commit(ctx)
}

// extensions of the usual types, whatever the machine's tables say.
var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"audio/mpeg": ".mp3", "audio/wav": ".wav", "audio/ogg": ".ogg", "audio/mp4": ".m4a",
	"application/pdf": ".pdf", "application/json": ".json", "application/zip": ".zip",
	"text/plain": ".txt", "text/csv": ".csv", "text/html": ".html", "text/markdown": ".md",
}

// fileName is made of the tool's name and the place in its result, from 1.
func (t *remote) fileName(i int, mediaType string) string {
	base, _, _ := mime.ParseMediaType(mediaType)
	ext, ok := extensions[strings.ToLower(base)]
	if !ok {
		ext = ".bin"
	}
	return fmt.Sprintf("%s-%d%s", t.spec.Name, i+1, ext)
}
