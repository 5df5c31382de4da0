package dialect_test

import (
	"encoding/json"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
)

func TestDelta(t *testing.T) {
	for data, want := range map[string][2]string{
		`{"message_id":"m","delta":"a\"b"}`:          {`"m"`, `"a\"b"`},
		`{"reasoning_id":"r\\","delta":""}`:          {`"r\\"`, `""`},
		`{"call_id":"c","delta":"}"}`:                {`"c"`, `"}"`},
		`{"delta":"x","message_id":"m"}`:             {`"m"`, `"x"`},
		`{"message_id":"m","delta":"x","later":1}`:   {`"m"`, `"x"`},
		`{ "message_id" : "m" , "delta" : "\u00e9"}`: {`"m"`, `"é"`},
	} {
		id, text, ok := dialect.Delta(json.RawMessage(data))
		if !ok || string(id) != want[0] || string(text) != want[1] {
			t.Errorf("%s: %s %s %v", data, id, text, ok)
		}
	}
	for _, data := range []string{`{}`, ``, `{"message_id":"m"}`, `{"message_id":7,"delta":"x"}`, `[]`, `{"message_id":"m","delta":"x"`} {
		if id, text, ok := dialect.Delta(json.RawMessage(data)); ok {
			t.Errorf("%s is read: %s %s", data, id, text)
		}
	}
}

func TestObject(t *testing.T) {
	m := dialect.NewObject(0).Text("a", "x\"\u2028").Some("no", "").Raw("r", nil).Open("o").Raw("n", json.RawMessage("1")).Close().Value("v", []int{1}).Message("e")
	if want := `{"a":"x\"\u2028","o":{"n":1},"v":[1]}`; string(m.Data) != want || m.Event != "e" {
		t.Errorf("%s %s", m.Event, m.Data)
	}
}

// Models may write an object over several lines; it is the same object.
func TestArguments(t *testing.T) {
	for args, want := range map[string]string{
		"":                           `{}`,
		" \n":                        `{}`,
		`{"a": 1}`:                   `{"a": 1}`,
		"  {\"a\": 1} ":              `{"a": 1}`,
		"{\n  \"a\": [1,\r\n 2]\n}":  `{"a":[1,2]}`,
		"{\"a\":\"\u2028\"}":         `{"a":"\u2028"}`,
		"{\"n\":\n9007199254740993}": `{"n":9007199254740993}`,
		`{"a":`:                      `"{\"a\":"`,
		`[1]`:                        `"[1]"`,
		`null`:                       `"null"`,
		"not\nJSON":                  `"not\nJSON"`,
	} {
		if got := dialect.Arguments(args); string(got) != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}
