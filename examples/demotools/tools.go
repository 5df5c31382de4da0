package demotools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type countIn struct {
	N       int `json:"n" jsonschema:"how far to count, 1 to 1000"`
	DelayMS int `json:"delay_ms,omitempty" jsonschema:"milliseconds before each step"`
}

func countSlowly(ctx context.Context, req *mcp.CallToolRequest, in countIn) (*mcp.CallToolResult, any, error) {
	if in.N < 1 || in.N > 1000 {
		return nil, nil, fmt.Errorf("n is %d; give a number from 1 to 1000", in.N)
	}
	for k := 1; k <= in.N; k++ {
		if err := pause(ctx, in.DelayMS); err != nil {
			return nil, nil, err
		}
		if err := reportStep(ctx, req, k, in.N); err != nil {
			return nil, nil, err
		}
	}
	return text(fmt.Sprintf("Counted to %d.", in.N)), nil, nil
}

func reportStep(ctx context.Context, req *mcp.CallToolRequest, k, n int) error {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token, Progress: float64(k), Total: float64(n),
		Message: fmt.Sprintf("counted %d of %d", k, n),
	})
}

type lookupIn struct {
	Key string `json:"key" jsonschema:"a planet, as in: earth"`
}

// Planet is the structured output of lookup.
type Planet struct {
	Name           string  `json:"name"`
	DistanceKM     int64   `json:"distance_km" jsonschema:"mean distance from the sun"`
	RadiusKM       float64 `json:"radius_km"`
	Moons          int     `json:"moons"`
	MassMegatonnes int64   `json:"mass_megatonnes"`
	Description    string  `json:"description"`
}

var planets = map[string]Planet{
	"mercury": {"Mercury", 57_909_050, 2439.7, 0, 330_103_000_000_000, "the smallest, and the closest to the sun"},
	"venus":   {"Venus", 108_208_000, 6051.8, 0, 4_867_310_000_000_000, "hotter than Mercury, under clouds of acid"},
	"earth":   {"Earth", 149_598_023, 6371.0, 1, 5_972_168_000_000_000, "the one with oceans and people"},
	"mars":    {"Mars", 227_939_366, 3389.5, 2, 641_691_000_000_000, "cold, red, with the highest mountain"},
	"jupiter": {"Jupiter", 778_479_000, 69911, 95, 1_898_125_000_000_000_000, "heavier than all the others together"},
	"saturn":  {"Saturn", 1_433_530_000, 58232, 146, 568_317_000_000_000_000, "ringed, and lighter than water"},
}

func lookup(_ context.Context, _ *mcp.CallToolRequest, in lookupIn) (*mcp.CallToolResult, *Planet, error) {
	p, ok := planets[strings.ToLower(in.Key)]
	if !ok {
		known := slices.Sorted(maps.Keys(planets))
		return nil, nil, fmt.Errorf("nothing is known about %q; try one of %s", in.Key, strings.Join(known, ", "))
	}
	return nil, &p, nil
}

type failIn struct {
	Message string `json:"message,omitempty" jsonschema:"what the error says"`
}

func fail(_ context.Context, _ *mcp.CallToolRequest, in failIn) (*mcp.CallToolResult, any, error) {
	if in.Message == "" {
		in.Message = "This tool always fails."
	}
	return nil, nil, errors.New(in.Message)
}

const (
	defaultBig = 3_000_000
	maxBig     = 16_000_000
)

type bigIn struct {
	Bytes int `json:"bytes,omitempty" jsonschema:"size of the text in bytes, 1 to 16000000"`
}

func big(_ context.Context, _ *mcp.CallToolRequest, in bigIn) (*mcp.CallToolResult, any, error) {
	n := in.Bytes
	if n == 0 {
		n = defaultBig
	}
	if n < 0 || n > maxBig {
		return nil, nil, fmt.Errorf("bytes is %d; give a number from 1 to %d", n, maxBig)
	}
	return text(Prose(n)), nil, nil
}

// Prose is exactly n bytes of numbered lines with runes of one to four bytes.
func Prose(n int) string {
	const tail = "The quick brown fox jumps over the lazy dog; größer, 漢字, 🙂.\n"
	var b strings.Builder
	b.Grow(n + len(tail) + 16)
	for line := 1; b.Len() < n; line++ {
		fmt.Fprintf(&b, "%07d  %s", line, tail)
	}
	s := b.String()
	cut := n
	for cut > 0 && cut < len(s) && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + strings.Repeat(".", n-cut)
}

type sleepIn struct {
	MS int `json:"ms" jsonschema:"milliseconds to sleep"`
}

func sleep(ctx context.Context, _ *mcp.CallToolRequest, in sleepIn) (*mcp.CallToolResult, any, error) {
	if err := pause(ctx, in.MS); err != nil {
		return nil, nil, err
	}
	return text(fmt.Sprintf("Slept for %d ms.", in.MS)), nil, nil
}

func die(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
	os.Exit(3)
	return nil, nil, nil
}

func pause(ctx context.Context, ms int) error {
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
