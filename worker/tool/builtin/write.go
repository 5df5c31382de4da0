package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"path"
	"strings"
	"unicode"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// writeArtifact keeps text as a file of the session. A retry makes a new
// artifact: the one of the lost attempt was never completed.
type writeArtifact struct{}

func (writeArtifact) Spec() tool.Spec {
	return tool.Spec{
		Name:        "write_artifact",
		Description: "Writes a text file that the user can open and download. Returns a reference to it.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"name":{"type":"string","description":"file name with extension, without folders, as in report.md"},` +
			`"content":{"type":"string","description":"the whole text of the file"},` +
			`"media_type":{"type":"string","description":"only if the extension does not tell, as in text/csv"}},` +
			`"required":["name","content"],"additionalProperties":false}`),
		OnCrash: tool.Retry,
	}
}

type writeArgs struct {
	Name      *string `json:"name"`
	Content   *string `json:"content"`
	MediaType *string `json:"media_type"`
}

func (writeArtifact) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	var a writeArgs
	if problem := decode(call.Args, &a, "name, content and media_type"); problem != "" {
		return tool.Failed(problem), nil
	}
	if problem := a.check(); problem != "" {
		return tool.Failed(problem), nil
	}
	part, err := write(ctx, call, *a.Name, *a.MediaType, *a.Content)
	if err != nil {
		return tool.Result{}, fmt.Errorf("write artifact %q: %w", *a.Name, err)
	}
	return tool.Result{Content: []event.Part{part}}, nil
}

// check says what is wrong, and fills in the media type.
func (a *writeArgs) check() string {
	switch {
	case a.Name == nil:
		return `The argument "name" is missing: give a file name such as report.md.`
	case a.Content == nil:
		return `The argument "content" is missing: give the text of the file as a string.`
	case strings.TrimSpace(*a.Name) == "" || *a.Name == "." || *a.Name == "..":
		return `The argument "name" must be a file name such as report.md.`
	case strings.ContainsAny(*a.Name, `/\`):
		return fmt.Sprintf(`The argument "name" must be a file name without folders: %q is not.`, *a.Name)
	case len(*a.Name) > 255:
		return fmt.Sprintf(`The argument "name" must have at most 255 bytes: it has %d.`, len(*a.Name))
	case strings.ContainsFunc(*a.Name, unicode.IsControl):
		return `The argument "name" must not have control characters such as line breaks in it.`
	}
	if a.MediaType == nil || *a.MediaType == "" {
		guess := mediaType(*a.Name)
		a.MediaType = &guess
	}
	if base, _, err := mime.ParseMediaType(*a.MediaType); err != nil || !strings.Contains(base, "/") || len(*a.MediaType) > 127 {
		return fmt.Sprintf(`The argument "media_type" must look like text/csv: %q does not.`, *a.MediaType)
	}
	return ""
}

// pieceSize is how much is written at once, so that progress shows and a cancel
// is noticed.
const pieceSize = 32 << 10

func write(ctx context.Context, call tool.Call, name, mediaType, content string) (event.Part, error) {
	w, err := call.Create(ctx, name, mediaType)
	if err != nil {
		return event.Part{}, err
	}
	for len(content) > 0 {
		piece := content[:min(len(content), pieceSize)]
		content = content[len(piece):]
		_, err := w.Write([]byte(piece))
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			w.Abort()
			return event.Part{}, err
		}
	}
	part, err := w.Commit(ctx)
	if err != nil {
		w.Abort()
	}
	return part, err
}

// mediaTypes are those that text files have, whatever the machine's tables say.
var mediaTypes = map[string]string{
	".txt": "text/plain", ".log": "text/plain", ".md": "text/markdown", ".markdown": "text/markdown",
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".html": "text/html", ".htm": "text/html",
	".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript", ".ts": "text/plain",
	".json": "application/json", ".ndjson": "application/x-ndjson", ".jsonl": "application/x-ndjson",
	".xml": "application/xml", ".svg": "image/svg+xml", ".yaml": "application/yaml", ".yml": "application/yaml",
	".ics": "text/calendar", ".vcf": "text/vcard", ".rtf": "application/rtf",
}

// mediaType guesses by the name: what is written here is text in any case.
func mediaType(name string) string {
	if t, ok := mediaTypes[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	return "text/plain"
}
