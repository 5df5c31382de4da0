package redact

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	r := New(Options{Secrets: []string{"hunter2-hunter2", "48151623", "🔑🔑", "123"}})
	for name, c := range map[string][2]string{
		"strings":       {`{"a":"x hunter2-hunter2 y","b":["hunter2-hunter2"]}`, `{"a":"x [redacted] y","b":["[redacted]"]}`},
		"any type":      {`{"password":[1,{"a":"]"}],"token":1.50,"secret":true,"cookie":{"a":"}"}}`, `{"password":"[redacted]","token":"[redacted]","secret":"[redacted]","cookie":"[redacted]"}`},
		"null, empty":   {`{"password":null,"token":"","a":"hunter2-hunter2"}`, `{"password":null,"token":"","a":"[redacted]"}`},
		"numbers, form": {"{ \"n\" : 9007199254740993, \"m\":1.0e+2 ,\t\"apiKey\" : 7 , \"z\":[ ] }\n", "{ \"n\" : 9007199254740993, \"m\":1.0e+2 ,\t\"apiKey\" : \"[redacted]\" , \"z\":[ ] }\n"},
		"known number":  {`{"pin":48151623,"n":481516234}`, `{"pin":"[redacted]","n":481516234}`},
		"key is secret": {`{"x hunter2-hunter2":1}`, `{"x [redacted]":1}`},
		"escaped key":   {`{"pass\u0077ord":"x"}`, `{"pass\u0077ord":"[redacted]"}`},
		"escapes kept":  {`"\u00e9\/\ud83d\ude00 hunter2\u002dhunter2 \ud800\"\t"`, `"\u00e9\/\ud83d\ude00 [redacted] \ud800\"\t"`},
		"nested":        {`{"a":"{\"password\":\"x\",\"n\":9007199254740993, \"\\u0061\":1}"}`, `{"a":"{\"password\":\"[redacted]\",\"n\":9007199254740993, \"\\u0061\":1}"}`},
		"nested number": {`{"a":" [{\"token\":5}]"}`, `{"a":" [{\"token\":\"[redacted]\"}]"}`},
		"nested cut":    {`{"a":"{\"password\":\"x"}`, `{"a":"{\"password\":\"[redacted]"}`},
		"duplicates":    {`{"token":"a","token":"b"}`, `{"token":"[redacted]","token":"[redacted]"}`},
		"surrogates":    {`"\ud83d\udd11\uD83D\uDD11"`, `"[redacted]"`},
		"short number":  {`[123]`, `[123]`},
		"known twice":   {`{"token":48151623,"a":1}`, `{"token":"[redacted]","a":1}`},
		"top string":    {`"hunter2-hunter2"`, `"[redacted]"`},
		"top number":    {` 48151623 `, ` "[redacted]" `},
		"not JSON":      {`{"password":"x`, `{"password":"[redacted]`},
		"two values":    {`{"token":"a"}{"token":"b"}`, `{"token":"[redacted]"}{"token":"[redacted]"}`},
		"pem":           {`{"k":"` + strings.ReplaceAll(fakePEM, "\n", `\n`) + `\n"}`, `{"k":"[redacted]\n"}`},
		"line ends":     {`{"a":"\u2028hunter2-hunter2\u2029"}`, `{"a":"\u2028[redacted]\u2029"}`},
	} {
		got := string(r.JSON(json.RawMessage(c[0])))
		if got != c[1] {
			t.Errorf("%s\n in   %s\n got  %s\n want %s", name, c[0], got, c[1])
		}
		if again := string(r.JSON(json.RawMessage(got))); again != got {
			t.Errorf("%s: a second pass made %s", name, again)
		}
	}
}

func TestJSONDeep(t *testing.T) {
	r := New(Options{Secrets: []string{"hunter2-hunter2"}})
	doc := `{"password":"x","n":1,"s":"hunter2-hunter2"}`
	for depth := range maxNesting + 3 {
		got := string(r.JSON(json.RawMessage(doc)))
		if !json.Valid([]byte(got)) || strings.Contains(got, "hunter2") {
			t.Fatalf("depth %d: %s", depth, got)
		}
		if depth <= maxNesting && strings.Count(got, Mark) != 2 {
			t.Fatalf("depth %d: %s", depth, got)
		}
		b, err := json.Marshal(map[string]string{"d": doc})
		if err != nil {
			t.Fatal(err)
		}
		doc = string(b)
	}
	brackets := json.RawMessage(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))
	if got := r.JSON(brackets); !bytes.Equal(got, brackets) {
		t.Error("deep array changed")
	}
}

func TestJSONWithoutSecretsIsTheSame(t *testing.T) {
	r := New(Options{Secrets: []string{"hunter2-hunter2"}})
	for _, in := range []string{
		`{"n":9007199254740993,"a":[1,2.50,-0e1],"s":"\u00e9\/","t":"{\"a\": 1}","max_tokens":5}`,
		"", " ", "null", `"[redacted]"`, `{"password":"[redacted]"}`, "not json", "\xff",
	} {
		raw := json.RawMessage(in)
		got := r.JSON(raw)
		if string(got) != in || len(in) > 0 && &got[0] != &raw[0] {
			t.Errorf("%q became %q", in, got)
		}
	}
	if r.JSON(nil) != nil {
		t.Error("nil is not nil")
	}
}

func TestArgs(t *testing.T) {
	r := New(Options{Secrets: []string{"0123456789"}})
	for in, want := range map[string]string{
		`{"q":"x"}`:        `{"q":"x"}`,
		`{"password":"x"}`: `{"password":"[redacted]"}`,
		`{"password":"x`:   `{"password":"[redacted]`,
		`"` + fakeGitLab:   `"[redacted]`,
		`["0123456789"]`:   `["[redacted]"]`,
		``:                 ``,
	} {
		got, changed := r.Args(in)
		if got != want || changed != (in != want) {
			t.Errorf("Args(%s) = %s, %t", in, got, changed)
		}
	}
}

// randomJSON is a document made of the same fragments as the random texts.
func randomJSON(rng *rand.Rand, depth int) any {
	switch k := rng.IntN(9); {
	case k < 3 || depth > 3:
		return strings.ToValidUTF8(randomText(rng), "?")
	case k == 3:
		return json.Number("9007199254740993")
	case k == 4:
		return []any{nil, true, 1.5}[rng.IntN(3)]
	case k == 5:
		b, _ := json.Marshal(randomJSON(rng, depth+1))
		return string(b)
	case k == 6:
		return []any{randomJSON(rng, depth+1), randomJSON(rng, depth+1)}
	}
	keys := []string{"a", "password", "api_key", "max_tokens", "b\"c", "clientSecret", "DB_PASSWORD=", "é"}
	m := map[string]any{}
	for range rng.IntN(4) {
		m[keys[rng.IntN(len(keys))]] = randomJSON(rng, depth+1)
	}
	return m
}

// TestJSONStaysJSON holds for JSON and for String, and nothing known remains.
func TestJSONStaysJSON(t *testing.T) {
	secrets := []string{"hunter2-hunter2", "another/known <secret>"}
	r := New(Options{Secrets: secrets})
	rng := rand.New(rand.NewPCG(13, 17))
	rounds := 6000
	if testing.Short() {
		rounds = 2000
	}
	for range rounds {
		raw, err := json.Marshal(randomJSON(rng, 0))
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]string{"JSON": string(r.JSON(raw)), "String": r.String(string(raw))} {
			if !json.Valid([]byte(got)) {
				t.Fatalf("%s\n in  %s\n got %s", name, raw, got)
			}
			for _, s := range secrets {
				if strings.Contains(got, s) {
					t.Fatalf("%s leaves %s in %s", name, s, got)
				}
			}
		}
	}
}

func FuzzJSON(f *testing.F) {
	r := New(Options{Secrets: []string{"hunter2-hunter2"}})
	rng := rand.New(rand.NewPCG(2, 2))
	for range 50 {
		raw, _ := json.Marshal(randomJSON(rng, 0))
		f.Add(string(raw))
	}
	f.Fuzz(func(t *testing.T, in string) {
		got := r.JSON(json.RawMessage(in))
		if !json.Valid([]byte(in)) {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("JSON\n in  %q\n got %q", in, got)
		}
		if s := r.String(in); !json.Valid([]byte(s)) && !strings.Contains(in, "hunter2-hunter2") {
			t.Fatalf("String\n in  %q\n got %q", in, s)
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	r := New(Options{Secrets: []string{"known-secret-1"}})
	in := json.RawMessage(`{"list":[` + strings.Repeat(`{"name":"some file","size":12345,"text":"a line of text\n"},`, 1000) + `1]}`)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		r.JSON(in)
	}
}
