package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// Bytes that read_artifact returns at once.
const (
	defaultRead = 32 << 10
	maxRead     = 256 << 10
)

// readArtifact reads on in what was too large for a result.
type readArtifact struct{}

func (readArtifact) Spec() tool.Spec {
	return tool.Spec{
		Name:        event.ReadArtifactTool,
		Description: "Reads text from an artifact, such as the whole of a result that was truncated. Says how large it is and where to read on.",
		Parameters: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{`+
			`"artifact_id":{"type":"string","description":"as a result or a message names it: art_..."},`+
			`"offset":{"type":"integer","minimum":0,"description":"the byte to begin at; 0 if left out"},`+
			`"limit":{"type":"integer","minimum":1,"maximum":%d,"description":"how many bytes to read; %d if left out"}},`+
			`"required":["artifact_id"],"additionalProperties":false}`, maxRead, defaultRead)),
		OnCrash: tool.Retry,
	}
}

type readArgs struct {
	ArtifactID *string `json:"artifact_id"`
	Offset     *int64  `json:"offset"`
	Limit      *int64  `json:"limit"`
}

func (readArtifact) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	var a readArgs
	if problem := decode(call.Args, &a, "artifact_id, offset and limit"); problem != "" {
		return tool.Failed(problem), nil
	}
	if problem := a.check(); problem != "" {
		return tool.Failed(problem), nil
	}
	src, about, err := call.Open(ctx, *a.ArtifactID)
	switch {
	case errors.Is(err, artifacts.ErrNotFound), errors.Is(err, artifacts.ErrBadKey):
		return failed("There is no artifact %q. Use an artifact_id from a result or a message.", *a.ArtifactID), nil
	case err != nil:
		return tool.Result{}, fmt.Errorf("open artifact %s: %w", *a.ArtifactID, err)
	}
	defer src.Close()
	res, err := readText(src, about, *a.Offset, *a.Limit)
	if err != nil {
		return tool.Result{}, fmt.Errorf("read artifact %s: %w", *a.ArtifactID, err)
	}
	return res, nil
}

// check says what is wrong, and fills in offset and limit.
func (a *readArgs) check() string {
	zero, usual := int64(0), int64(defaultRead)
	if a.Offset == nil {
		a.Offset = &zero
	}
	if a.Limit == nil {
		a.Limit = &usual
	}
	switch {
	case a.ArtifactID == nil || *a.ArtifactID == "":
		return `The argument "artifact_id" is missing: give the id of an artifact, as in art_...`
	case *a.Offset < 0:
		return fmt.Sprintf(`The argument "offset" must be 0 or more: it is %d.`, *a.Offset)
	case *a.Limit < 1 || *a.Limit > maxRead:
		return fmt.Sprintf(`The argument "limit" must be from 1 to %d: it is %d.`, maxRead, *a.Limit)
	}
	return ""
}

// readText returns limit bytes from offset, give or take the runes at both ends.
func readText(src io.ReadSeeker, about event.Part, offset, limit int64) (tool.Result, error) {
	if offset > about.Bytes {
		return failed("The argument \"offset\" is %d, but the artifact ends at %d.", offset, about.Bytes), nil
	}
	if binary(about.MediaType) {
		return notText(about), nil
	}
	if _, err := src.Seek(offset, io.SeekStart); err != nil {
		return tool.Result{}, err
	}
	// One rune more, so that the smallest limit still gets on.
	data, err := io.ReadAll(io.LimitReader(src, limit+utf8.UTFMax))
	if err != nil {
		return tool.Result{}, err
	}
	text, skipped, ok := wholeRunes(data, int(limit), offset > 0, offset+int64(len(data)) >= about.Bytes)
	if !ok {
		return notText(about), nil
	}
	return page(about, offset+int64(skipped), text), nil
}

// page is a result that says where it begins and where to read on.
func page(about event.Part, offset int64, text string) tool.Result {
	next := offset + int64(len(text))
	note := fmt.Sprintf("[%s, bytes %d to %d of %d. ", describe(about), offset, next, about.Bytes)
	where := struct {
		ArtifactID string `json:"artifact_id"`
		Offset     int64  `json:"offset"`
		NextOffset int64  `json:"next_offset,omitempty"`
		Total      int64  `json:"total"`
	}{about.ArtifactID, offset, next, about.Bytes}
	if next < about.Bytes {
		note += fmt.Sprintf("Read on with offset %d.]", next)
	} else {
		note += "This is the end.]"
		where.NextOffset = 0
	}
	structured, _ := json.Marshal(where)
	return tool.Result{Content: []event.Part{event.TextPart(note), event.TextPart(text)}, Structured: structured}
}

func notText(about event.Part) tool.Result {
	return tool.Result{Content: []event.Part{
		event.TextPart(fmt.Sprintf("[%s, %d bytes. It is not text and cannot be read here.]", describe(about), about.Bytes)),
	}}
}

func describe(about event.Part) string {
	if about.Name == "" {
		return fmt.Sprintf("artifact %s, %s", about.ArtifactID, about.MediaType)
	}
	return fmt.Sprintf("artifact %s, %q, %s", about.ArtifactID, about.Name, about.MediaType)
}

// wholeRunes cuts data to about limit bytes, at least one rune, without a piece
// of a rune at either end. middle: it does not begin at the artifact's start.
// ok is false if it is no UTF-8 text.
func wholeRunes(data []byte, limit int, middle, end bool) (text string, skipped int, ok bool) {
	for middle && skipped < min(utf8.UTFMax-1, len(data)) && !utf8.RuneStart(data[skipped]) {
		skipped++
	}
	data = data[skipped:]
	n := 0
	for n < len(data) {
		r, size := utf8.DecodeRune(data[n:])
		partial := !end && !utf8.FullRune(data[n:])
		if n > 0 && n+size > limit || partial {
			break
		}
		if r == 0 || r == utf8.RuneError && size == 1 {
			return "", 0, false
		}
		n += size
	}
	return string(data[:n]), skipped, true
}

// binary reports whether the media type is one that no text has.
func binary(mediaType string) bool {
	base, _, _ := mime.ParseMediaType(mediaType)
	kind, sub, _ := strings.Cut(base, "/")
	switch {
	case strings.HasSuffix(sub, "+xml"), strings.HasSuffix(sub, "+json"):
		return false
	case kind == "image", kind == "audio", kind == "video", kind == "font":
		return true
	}
	return base == "application/pdf" || base == "application/zip" || base == "application/gzip"
}
