package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/examples/demotools"
	"github.com/runlog-dev/runlog/worker/tool"
	"github.com/runlog-dev/runlog/worker/tool/mcp"
)

// onBoth runs a test against the demo tools over stdio and over HTTP.
func onBoth(t *testing.T, test func(t *testing.T, open func(*testing.T, ...func(*mcp.Options)) *mcp.Server)) {
	t.Run("stdio", func(t *testing.T) {
		test(t, func(t *testing.T, change ...func(*mcp.Options)) *mcp.Server { return open(t, "demo", change...) })
	})
	t.Run("http", func(t *testing.T) {
		test(t, func(t *testing.T, change ...func(*mcp.Options)) *mcp.Server {
			web := httptest.NewServer(sdk.NewStreamableHTTPHandler(
				func(*http.Request) *sdk.Server { return demotools.New() }, nil))
			t.Cleanup(web.Close)
			return openURL(t, web.URL, change...)
		})
	})
}

func openURL(t *testing.T, url string, change ...func(*mcp.Options)) *mcp.Server {
	opt := mcp.Options{Name: "web", URL: url}
	for _, f := range change {
		f(&opt)
	}
	s := mcp.Open(opt)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestToolsCarryTheServersHints(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(*testing.T, ...func(*mcp.Options)) *mcp.Server) {
		s := open(t)
		want := map[string]tool.OnCrash{"big": tool.Retry, "count_slowly": tool.Retry, "die": tool.Fail,
			"fail": tool.Retry, "lookup": tool.Retry, "sleep": tool.Fail}
		tools, err := s.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]tool.OnCrash{}
		for _, tl := range tools {
			spec := tl.Spec()
			got[spec.Name] = spec.OnCrash
			if spec.Description == "" || spec.Timeout != tool.DefaultTimeout || !json.Valid(spec.Parameters) {
				t.Errorf("spec of %s: %+v", spec.Name, spec)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		// Not the alphabet's order, the server's.
		if p := string(find(t, s, "count_slowly").Spec().Parameters); strings.Index(p, `"n"`) > strings.Index(p, `"delay_ms"`) {
			t.Errorf("the schema lost its order: %s", p)
		}
	})
}

func TestOptionsOverrideHintsAndNames(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(*testing.T, ...func(*mcp.Options)) *mcp.Server) {
		s := open(t, func(o *mcp.Options) {
			o.Allow, o.Prefix, o.OnCrash, o.Timeout = []string{"lookup", "sleep", "nope"}, "demo.", tool.Retry, 5e9
		})
		tools, err := s.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := names(tools); !reflect.DeepEqual(got, []string{"demo_lookup", "demo_sleep"}) {
			t.Fatalf("tools are %v", got)
		}
		for _, tl := range tools {
			if tl.Spec().OnCrash != tool.Retry || tl.Spec().Timeout != 5e9 {
				t.Errorf("spec is %+v", tl.Spec())
			}
		}
		if got := textOf(do(t, s, "demo_lookup", `{"key":"mars"}`)); !strings.Contains(got, "red") {
			t.Errorf("lookup says %q", got)
		}
	})
}

func TestProgressComesInOrderAndBeforeTheAnswer(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(*testing.T, ...func(*mcp.Options)) *mcp.Server) {
		s := open(t)
		var mu sync.Mutex
		var got []event.Progress
		call := tool.Call{CallID: "call_1", Args: `{"n":20}`, Progress: func(p event.Progress) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, p)
		}}
		res, err := find(t, s, "count_slowly").Call(t.Context(), call)
		if err != nil || res.Failed || textOf(res) != "Counted to 20." {
			t.Fatalf("got %+v, %v", res, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(got) != 20 {
			t.Fatalf("%d reports, want 20: %v", len(got), got)
		}
		for i, p := range got {
			want := event.Progress{Progress: float64(i + 1), Total: 20, Message: fmt.Sprintf("counted %d of 20", i+1)}
			if p != want {
				t.Errorf("report %d is %+v", i, p)
			}
		}
	})
}

func TestResults(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(*testing.T, ...func(*mcp.Options)) *mcp.Server) {
		s := open(t)
		res := do(t, s, "lookup", `{"key":"Jupiter"}`)
		if res.Failed || !strings.Contains(string(res.Structured), `"mass_megatonnes":1898125000000000000`) {
			t.Errorf("lookup: %+v with %s", res, res.Structured)
		}
		if res := do(t, s, "fail", `{"message":"no <luck> today"}`); !res.Failed || textOf(res) != "no <luck> today" {
			t.Errorf("fail: %+v", res)
		}
		if got, want := textOf(do(t, s, "big", `{"bytes":3000000}`)), demotools.Prose(3_000_000); got != want {
			t.Errorf("big: %d bytes that differ from the %d expected", len(got), len(want))
		}
		for _, args := range []string{`{"n":"x"}`, `{"n":0}`, `{}`, `{"n":1,"m":2}`, `[]`, `null`, ``, `{"n":`} {
			if res := do(t, s, "count_slowly", args); !res.Failed || textOf(res) == "" {
				t.Errorf("arguments %q: %+v", args, res)
			}
		}
	})
}

func TestFiftyCallsAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(*testing.T, ...func(*mcp.Options)) *mcp.Server) {
		s := open(t)
		count := find(t, s, "count_slowly")
		var wg sync.WaitGroup
		for i := 1; i <= 50; i++ {
			wg.Go(func() {
				reports := 0
				res, err := count.Call(t.Context(), tool.Call{CallID: "same", Args: fmt.Sprintf(`{"n":%d}`, i),
					Progress: func(event.Progress) { reports++ }})
				if want := fmt.Sprintf("Counted to %d.", i); err != nil || textOf(res) != want || reports != i {
					t.Errorf("call %d: %q after %d reports, %v", i, textOf(res), reports, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestNamesAreMadeFitForModels(t *testing.T) {
	s := open(t, "many")
	tools, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := names(tools); !reflect.DeepEqual(got, []string{"a_b", "a_b_2"}) {
		t.Fatalf("names are %v", got)
	}
	if got := string(tools[0].Spec().Parameters); got != `{"properties":{},"type":"object"}` {
		t.Errorf("a schema without properties became %s", got)
	}
	if spec := tools[1].Spec(); spec.Description != "Space" || !strings.Contains(string(spec.Parameters),
		`{"type":"object","properties":{"zeta":{"type":"integer","maximum":9007199254740993},"alpha"`) {
		t.Errorf("spec is %+v with %s", spec, spec.Parameters)
	}
}

func TestArgumentsAndStructuredResultsKeepTheirText(t *testing.T) {
	s := open(t, "odd")
	args := `{"z": 9007199254740993, "a":1.50, "s":"<é\u00e9 \u2028>"}`
	res, err := find(t, s, "args").Call(t.Context(), tool.Call{CallID: "call_7", RunID: "run_1", Args: args,
		IdempotencyKey: "key_1", Attempt: 3})
	if err != nil {
		t.Fatal(err)
	}
	line := textOf(res)
	for _, want := range []string{`"arguments":{"z":9007199254740993,"a":1.50,"s":"<é\u00e9 \u2028>"}`,
		`"runlog/idempotency_key":"key_1"`, `"runlog/attempt":3`, `"runlog/run_id":"run_1"`, `"runlog/call_id":"call_7"`} {
		if !strings.Contains(line, want) {
			t.Errorf("the server got %s without %s", line, want)
		}
	}
	res = do(t, s, "numbers", `{}`)
	if got, want := string(res.Structured), `{"z":9007199254740993,"a":1e400,"<&>":"é"}`; got != want {
		t.Errorf("structured is %s, want %s", got, want)
	}
	if len(res.Content) != 1 || res.Content[0].Type != event.PartJSON {
		t.Errorf("without content of its own, the content is %+v", res.Content)
	}
}

func TestMediaBecomesArtifacts(t *testing.T) {
	s := open(t, "odd")
	var shelf shelf
	res, err := find(t, s, "media").Call(t.Context(), tool.Call{Args: "{}", Create: shelf.create})
	if err != nil {
		t.Fatal(err)
	}
	want := []event.Part{
		{Type: event.PartText, Text: "one\x00\u2028é"},
		{Type: event.PartImage, ArtifactID: "art_media-2.png", Name: "media-2.png", MediaType: "image/png", Bytes: 5},
		{Type: event.PartAudio, ArtifactID: "art_media-3.wav", Name: "media-3.wav", MediaType: "audio/wav", Bytes: 5},
		{Type: event.PartResource, URI: "file:///a/b.txt", Name: "b.txt", MediaType: "text/plain", Bytes: 12},
		{Type: event.PartText, Text: "inline"},
		{Type: event.PartFile, ArtifactID: "art_d.pdf", Name: "d.pdf", MediaType: "application/pdf", Bytes: 3},
	}
	if !res.Failed || !reflect.DeepEqual(res.Content, want) {
		t.Errorf("got  %+v\nwant %+v", res.Content, want)
	}
	if shelf.files["media-2.png"] != "image" || shelf.files["d.pdf"] != "pdf" {
		t.Errorf("artifacts hold %v", shelf.files)
	}
	if res, err = find(t, s, "media").Call(t.Context(), tool.Call{Args: "{}"}); err != nil || !strings.Contains(textOf(res), "left out") {
		t.Errorf("without artifacts: %+v, %v", res, err)
	}
}

func TestAChangedListIsAskedForAgain(t *testing.T) {
	s := open(t, "odd")
	before, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, "grow", `{}`)
	// The notification is handled after the answer that came behind it, or before.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if after, err := s.Tools(ctx); err == nil && len(after) == len(before)+1 {
			return
		}
	}
	t.Error("the new tool was never listed")
}

func TestAServerOfTheNewestProtocolOnly(t *testing.T) {
	opt := &sdk.ServerOptions{SupportedProtocolVersions: sdk.SupportedProtocolVersions()[:1]}
	srv := sdk.NewServer(&sdk.Implementation{Name: "new", Version: "1"}, opt)
	sdk.AddTool(srv, &sdk.Tool{Name: "hello"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "hi"}}}, nil, nil
	})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close) // after the client, whose subscription it waits for
	if got := textOf(do(t, openURL(t, web.URL), "hello", "{}")); got != "hi" {
		t.Errorf("got %q", got)
	}
}
