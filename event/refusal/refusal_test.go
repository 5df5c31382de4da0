package refusal

import "testing"

const (
	text = `{"type":"text","text":"a"}`
	use  = `{"type":"tool_use","id":"c","name":"n","input":{}}`
	done = `{"type":"tool_result","tool_use_id":"c","content":"x"}`
	user = `{"role":"user","content":"a"}`
	call = `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{}"}}]}`
	tool = `{"role":"tool","tool_call_id":"c","content":"x"}`
)

func TestChat(t *testing.T) {
	for _, good := range []string{
		`[` + user + `]`, `[{"role":"system","content":"s"},` + user + `,` + call + `,` + tool + `]`,
		`[` + user + `,{"role":"assistant","content":"b"},` + user + `]`,
		`[` + user + `,{"role":"assistant","content":null,"reasoning_content":"hm"},` + user + `]`,
	} {
		if err := Chat([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		`[]`, `{`, `[{"role":"user","content":" "}]`, `[` + user + `,` + user + `]`, `[{"role":"robot","content":"a"}]`,
		`[` + user + `,{"role":"assistant","content":"b"}]`, `[{"role":"assistant","content":"b"},` + user + `]`,
		`[` + user + `,{"role":"assistant","content":""},` + user + `]`, `[` + user + `,{"role":"system","content":"b"},` + user + `]`,
		`[` + user + `,` + tool + `]`, `[` + user + `,` + call + `,` + user + `]`, `[` + user + `,` + call + `]`,
		`[` + user + `,` + call + `,` + tool + `,` + tool + `]`, `[` + user + `,` + call + `,` + tool + `,` + call + `,` + tool + `]`,
		`[` + user + `,{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{"}}]},` + tool + `]`,
		`[` + user + `,{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"n","arguments":"{}"}}]},` + tool + `]`,
		`[{"role":"user","content":"a","mood":"good"}]`, "[{\"role\":\"user\",\"content\":\"\xff\"}]",
	} {
		if Chat([]byte(bad)) == nil {
			t.Errorf("%s is let pass", bad)
		}
	}
}

func TestMessages(t *testing.T) {
	says := func(role, blocks string) string { return `{"role":"` + role + `","content":[` + blocks + `]}` }
	hi, calls, result := says("user", text), says("assistant", use), says("user", done)
	for _, good := range []string{
		`[` + hi + `]`, `[` + hi + `,` + calls + `,` + result + `]`, `[` + hi + `,` + calls + `,` + says("user", done+`,`+text) + `]`,
		`[` + hi + `,` + says("assistant", `{"type":"thinking","thinking":"","signature":"s"},{"type":"redacted_thinking","data":"d"},`+text) + `,` + hi + `]`,
	} {
		if err := Messages([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		`[]`, `[` + says("assistant", text) + `]`, `[` + says("user", "") + `]`, `[` + says("user", `{"type":"text","text":" "}`) + `]`,
		`[` + hi + `,` + says("assistant", text) + `]`, `[` + hi + `,` + hi + `]`, `[` + hi + `,` + calls + `,` + hi + `]`,
		`[` + hi + `,` + calls + `,` + says("user", text+`,`+done) + `]`, `[` + hi + `,` + calls + `,` + says("user", done+`,`+done) + `]`,
		`[` + hi + `,` + says("assistant", `{"type":"thinking","thinking":"","signature":"s"}`) + `,` + hi + `]`,
		`[` + hi + `,` + says("assistant", `{"type":"thinking"},`+text) + `,` + hi + `]`, `[` + hi + `,` + says("assistant", done) + `,` + hi + `]`,
		`[` + hi + `,` + says("assistant", `{"type":"tool_use","id":"c","name":"n","input":[]}`) + `,` + result + `]`,
		`[` + hi + `,` + says("assistant", `{"type":"tool_use","id":"c","name":"n","input":{"x":"\ud83d"}}`) + `,` + result + `]`,
	} {
		if Messages([]byte(bad)) == nil {
			t.Errorf("%s is let pass", bad)
		}
	}
}
