package catalog

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCleanJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"\u0000"}`:                       `{"a":"\ufffd"}`,
		`{"\u0000":1}`:                         `{"\ufffd":1}`,
		`["\ud800"]`:                           `["\ufffd"]`,
		`["\ud800\ud83c\udf24"]`:               `["\ufffd\ud83c\udf24"]`,
		`["\udf24\ud83c"]`:                     `["\ufffd\ufffd"]`,
		`["\ud83cx\udf24"]`:                    `["\ufffdx\ufffd"]`,
		`["\\u0000","\\\u0000"]`:               `["\\u0000","\\\ufffd"]`,
		`["\D83C"]`:                            "",
		`{"n":9007199254740993,"z":1,"a":2.0}`: `{"n":9007199254740993,"z":1,"a":2.0}`,
		"[\"\xff\"]":                           "[\"\uFFFD\"]",
		"{":                                    "",
		"":                                     "",
	} {
		if got := cleanJSON(json.RawMessage(in)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// FuzzCleanJSON holds it to what the decoder makes of a text: the same, but for
// NUL.
func FuzzCleanJSON(f *testing.F) {
	for _, s := range []string{`{"a":"\u0000\ud800x\ud83c\udf24"}`, `["\\u0000\\\u0000"]`, `1e999`, "\"\xed\xa0\x80\"", `["\ud800\ud800\udc00"]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := cleanJSON(raw)
		if !json.Valid(raw) {
			if got != "" {
				t.Fatalf("%q is no JSON, became %q", raw, got)
			}
			return
		}
		if !utf8.ValidString(got) || !json.Valid([]byte(got)) || strings.Contains(got, "\x00") {
			t.Fatalf("%q became %q", raw, got)
		}
		if again := cleanJSON([]byte(got)); again != got {
			t.Fatalf("%q became %q and then %q", raw, got, again)
		}
		if a, b := decoded(t, raw), decoded(t, []byte(got)); !reflect.DeepEqual(withoutNUL(a), b) {
			t.Fatalf("%q became %q: %v, want %v", raw, got, b, a)
		}
	})
}

func decoded(t *testing.T, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func withoutNUL(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "\x00", "\uFFFD")
	case []any:
		for i := range v {
			v[i] = withoutNUL(v[i])
		}
	case map[string]any:
		// Two keys may become one: only the values of the others can be compared.
		clean := map[string]any{}
		for k, member := range v {
			clean[withoutNUL(k).(string)] = withoutNUL(member)
		}
		return clean
	}
	return v
}

func TestIdentKeepsLongIDsApart(t *testing.T) {
	long := strings.Repeat("é", 5000)
	a, b := ident(long+"a"), ident(long+"b")
	if a == b || len(a) > maxID || !utf8.ValidString(a) {
		t.Errorf("%q and %q", a, b)
	}
	if ident(a) != a {
		t.Errorf("%q is not the ident of itself", a)
	}
}
