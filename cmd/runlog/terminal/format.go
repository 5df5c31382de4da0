package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/event"
)

// printable makes text harmless to a terminal: whoever wrote it cannot move the
// cursor, set the title or hide what follows. Tabs and line feeds stay.
func printable(text string) string {
	if strings.IndexFunc(text, isControl) < 0 {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return -1
		case isControl(r):
			return utf8.RuneError
		}
		return r
	}, text)
}

func isControl(r rune) bool {
	return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7F && r < 0xA0
}

// oneLine makes a harmless line of at most n characters.
func oneLine(text string, n int) string {
	text = printable(text[:min(len(text), 4*n+utf8.UTFMax)])
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// size writes bytes for people: 7 B, 1.2 kB, 3.4 MB.
func size(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f := float64(n)
	for _, unit := range []string{"kB", "MB", "GB"} {
		if f /= 1000; f < 999.95 {
			return fmt.Sprintf("%.1f %s", f, unit)
		}
	}
	return fmt.Sprintf("%.1f TB", f/1000)
}

// lasted writes a duration for people: 12ms, 3.4s, 2m03s, 1h02m.
func lasted(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// between is the time from one event to another, or 0 if either is unknown.
func between(from, to event.Time) time.Duration {
	if from.IsZero() || to.IsZero() || to.Before(from.Time) {
		return 0
	}
	return to.Sub(from.Time)
}

// used writes a run's usage.
func used(u *event.Usage) string {
	if u == nil {
		return ""
	}
	parts := []string{}
	if u.Steps > 0 {
		parts = append(parts, count(u.Steps, "step"))
	}
	if u.ToolCalls > 0 {
		parts = append(parts, count(u.ToolCalls, "tool call"))
	}
	parts = append(parts, fmt.Sprintf("%d tokens in%s, %d out%s", u.InputTokens, aside(u.CachedInputTokens, "cached"),
		u.OutputTokens, aside(u.ReasoningTokens, "reasoning")))
	if u.CostUSD > 0 {
		parts = append(parts, fmt.Sprintf("$%.4f", u.CostUSD))
	}
	return strings.Join(parts, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func aside(n int64, what string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d %s)", n, what)
}

// contentLine tells a tool's result in a line.
func contentLine(parts []event.Part, n int) string {
	for _, p := range parts {
		switch p.Type {
		case event.PartText:
			return oneLine(p.Text, n)
		case event.PartJSON:
			return oneLine(string(p.Value), n)
		case event.PartFile, event.PartImage, event.PartAudio:
			return fmt.Sprintf("%s (%s)", oneLine(p.Name, n), size(p.Bytes))
		case event.PartResource:
			return oneLine(p.URI, n)
		}
	}
	return ""
}
