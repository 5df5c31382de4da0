package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// fitted is a tool's result as its event can hold it. artifact is set when the
// content was cut: it holds the whole.
type fitted struct {
	content    []event.Part
	structured json.RawMessage
	artifact   *event.Part
}

// fit redacts a result and, when it is over the agent's limit, cuts it at a rune
// boundary and keeps the whole in an artifact.
func (t *toolCall) fit(ctx context.Context, result tool.Result) (fitted, error) {
	if err := event.CheckResult(result.Content, result.Structured); err != nil {
		return fitted{}, err
	}
	f := fitted{content: t.redacted(result.Content), structured: result.Structured}
	if len(f.structured) > 0 {
		f.structured = t.run.Redactor.JSON(f.structured)
	}
	size := len(event.Encode(f.content)) + len(f.structured)
	if size <= t.run.limits.ToolResult {
		return f, nil
	}
	whole, mediaType := wholeText(f)
	part, err := t.keep(ctx, whole, mediaType)
	if err != nil {
		return fitted{}, err
	}
	return fitted{content: cutContent(f.content, t.run.limits.ToolResult/2), artifact: &part}, nil
}

func (t *toolCall) redacted(content []event.Part) []event.Part {
	out := make([]event.Part, len(content))
	for i, p := range content {
		p.Text = t.run.Redactor.String(p.Text)
		if len(p.Value) > 0 {
			p.Value = t.run.Redactor.JSON(p.Value)
		}
		p.Internal = p.Internal || t.internal && p.ArtifactID != ""
		out[i] = p
	}
	return out
}

// wholeText is what the artifact of a cut result holds: its texts, or its
// structured form if that is all there is.
func wholeText(f fitted) (text, mediaType string) {
	for _, p := range f.content {
		switch p.Type {
		case event.PartText:
			text += p.Text
		case event.PartJSON:
			text += string(p.Value)
		}
	}
	if text == "" {
		return string(f.structured), "application/json"
	}
	return text, "text/plain; charset=utf-8"
}

// keep writes the whole of a result as an artifact.
func (t *toolCall) keep(ctx context.Context, text, mediaType string) (event.Part, error) {
	artifacts := newArtifactLog(t)
	defer artifacts.close()
	w, err := artifacts.create(ctx, t.call.Name+"-result.txt", mediaType)
	if err != nil {
		return event.Part{}, err
	}
	defer w.Abort()
	for rest := text; rest != ""; {
		n := min(len(rest), 64<<10)
		if _, err := w.Write([]byte(rest[:n])); err != nil {
			return event.Part{}, fmt.Errorf("keep the whole result: %w", err)
		}
		rest = rest[n:]
	}
	return w.Commit(ctx)
}

// cutContent keeps the beginning of the texts, limit encoded bytes in all, and
// the parts that only refer to something.
func cutContent(content []event.Part, limit int) []event.Part {
	var out []event.Part
	for _, p := range content {
		switch p.Type {
		case event.PartJSON:
			p = event.TextPart(string(p.Value))
			fallthrough
		case event.PartText:
			if p.Text = headEncoded(p.Text, limit); p.Text == "" {
				continue
			}
			limit -= encodedLen(p.Text)
		}
		out = append(out, p)
	}
	return out
}

// headEncoded is the longest beginning of s of whole runes that takes at most
// limit bytes as JSON.
func headEncoded(s string, limit int) string {
	n := 0
	for i := 0; i < len(s); {
		_, size := utf8.DecodeRuneInString(s[i:])
		if n += encodedLen(s[i : i+size]); n > limit {
			return s[:i]
		}
		i += size
	}
	return s
}

// head is the beginning of s of at most limit bytes, whole runes.
func head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
