package event

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ReadArtifactTool is the name of the built-in tool that a cut result points to.
const ReadArtifactTool = "read_artifact"

// asText says to a model what the part is: text as it is, everything else as a
// reference in square brackets.
func (p Part) asText() string {
	switch p.Type {
	case PartText, PartReasoning:
		return p.Text
	case PartJSON:
		return string(p.Value)
	case PartResource:
		return join("\n", p.reference(p.URI), p.Text)
	case PartFile, PartImage, PartAudio:
		return p.reference(p.URL)
	case PartToolCall:
		return ""
	}
	return join("\n", p.reference(join(" ", p.URI, p.URL)), p.Text)
}

// reference describes what is not text: [image "cat.png", image/png, 1200 bytes,
// artifact art_1, /artifacts/art_1].
func (p Part) reference(where string) string {
	var about []string
	if p.Name != "" {
		about = append(about, strconv.Quote(p.Name))
	}
	about = append(about, p.MediaType)
	if p.Bytes > 0 {
		about = append(about, fmt.Sprintf("%d bytes", p.Bytes))
	}
	if p.ArtifactID != "" {
		about = append(about, "artifact "+p.ArtifactID)
	}
	if strings.HasPrefix(where, "data:") {
		where = "" // inline bytes are no reading matter
	}
	return "[" + join(" ", string(p.Type), join(", ", append(about, where)...)) + "]"
}

// result is what the model reads of the call: never empty.
func (c *ToolCall) result() string {
	text := join("\n\n", c.headline(), c.output(), c.cutNote())
	if blank(text) {
		return "(no output)"
	}
	return text
}

// headline says what became of a call that did not complete.
func (c *ToolCall) headline() string {
	switch c.Status {
	case Completed:
		return ""
	case Failed:
		return c.failure()
	case Running:
		return "Interrupted: the tool was called, its result was never recorded. The outcome is unknown: " +
			"it may or may not have had its effect. Check before you call it again."
	case WaitingApproval:
		return "Not run: nobody has approved the call."
	}
	return "Not run: the run ended or was interrupted before the tool was called."
}

func (c *ToolCall) failure() string {
	word := map[Outcome]string{
		OutcomeUnknown:   "Outcome unknown, the tool may or may not have had its effect",
		OutcomeDenied:    "Denied",
		OutcomeCancelled: "Cancelled",
	}[c.Outcome]
	if word == "" {
		word = "Error"
	}
	if c.Code != "" {
		word += " (" + string(c.Code) + ")"
	}
	if blank(c.Message) {
		return word + "."
	}
	return word + ": " + c.Message
}

// modelHead is how much of a cut result a model is given, in bytes: enough to
// see what it is, not so much that it fills the context. It can read on.
const modelHead = 32 << 10

// output is the content as text; structured output stands in where there is none.
func (c *ToolCall) output() string {
	list := make([]string, 0, len(c.Content))
	for _, p := range c.shown() {
		if text := p.asText(); !blank(text) {
			list = append(list, text)
		}
	}
	if len(list) == 0 && len(c.Structured) > 0 && string(c.Structured) != "null" {
		return string(c.Structured)
	}
	return strings.Join(list, "\n")
}

// shown is the content, of a cut result only its head.
func (c *ToolCall) shown() []Part {
	if !c.Truncated {
		return c.Content
	}
	left := modelHead
	var out []Part
	for _, p := range c.Content {
		whole := len(p.Text)
		p.Text = runes(p.Text, left)
		out = append(out, p)
		if left -= len(p.Text); len(p.Text) < whole {
			break
		}
	}
	return out
}

// cutNote tells how to read the rest of a result that is larger than its limit.
func (c *ToolCall) cutNote() string {
	if !c.Truncated {
		return ""
	}
	shown := 0
	for _, p := range c.shown() {
		shown += len(p.Text)
	}
	if c.Artifact == nil {
		return fmt.Sprintf("[Truncated: only the first %d bytes are here; the rest was not kept.]", shown)
	}
	return fmt.Sprintf("[Truncated: the first %d of %d bytes are here. The whole is artifact %s; read on with the tool %s, "+
		"artifact_id %q, offset %d.]", shown, c.Artifact.Bytes, c.Artifact.ArtifactID, ReadArtifactTool, c.Artifact.ArtifactID, shown)
}

// keptArgs bounds what a note quotes of arguments that no provider takes.
const keptArgs = 2000

// objectArgs returns arguments that every provider takes: the model's own text
// where it is a JSON object, otherwise {} and a note with the text.
func objectArgs(raw string) (args, note string) {
	trimmed := strings.TrimSpace(raw)
	switch {
	case trimmed == "":
		return "{}", ""
	case trimmed[0] == '{' && Valid([]byte(trimmed)):
		return pairSurrogates(raw), ""
	}
	quote := cutText(trimmed, keptArgs)
	return "{}", "[The arguments of this call were not a JSON object and are replaced by {}. They were: " + quote + "]"
}

// cutText cuts at a rune boundary, visibly.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return runes(s, limit) + "…"
}

// runes is the beginning of s of at most limit bytes, whole runes.
func runes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// pairSurrogates replaces escapes of half a UTF-16 pair, which some servers
// refuse together with the whole request.
func pairSurrogates(s string) string {
	if !strings.Contains(s, `\u`) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		n := 1
		switch {
		case s[i] == '\\' && isSurrogate(s[i:], 'd', '8', 'b') && isSurrogate(s[min(i+6, len(s)):], 'd', 'c', 'f'):
			n = 12
		case s[i] == '\\' && isSurrogate(s[i:], 'd', '8', 'f'):
			out = append(out, `\ufffd`...)
			i += 6
			continue
		case s[i] == '\\' && i+1 < len(s):
			n = 2
		}
		out = append(out, s[i:i+n]...)
		i += n
	}
	return string(out)
}

// isSurrogate reports whether s begins with \u and a code unit whose second
// digit lies in low..high.
func isSurrogate(s string, first, low, high byte) bool {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' || s[2]|0x20 != first {
		return false
	}
	digit := s[3]
	if digit >= 'A' && digit <= 'F' {
		digit |= 0x20
	}
	return digit >= low && digit <= high
}
