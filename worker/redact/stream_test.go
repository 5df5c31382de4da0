package redact

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

var streamSecrets = []string{"hunter2-hunter2", "hunter2", "ter2-hunter3", "aaaaaaab", "48151623", "pä\"ss/w+rd <x>", "世界の秘密"}

// fragments are what random texts are made of: secrets, beginnings of secrets,
// and what the rules look at.
var fragments = append([]string{
	fakeAnt, fakeOpenAI, fakeGitHub, fakePAT, fakeSlack, fakeAWS, fakeSTS, fakeGoogle, fakeGitLab, fakeJWT, fakePEM,
	"sk-", "sk-ant-", "ghp_", "AKIA", "eyJ", "eyJhbGciOiJIUzI1NiJ9.", "Bearer ", "bearer  ", "Basic ", "QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
	"abcdefghij0123456789", "https://", "postgres://bob:", "hunter2@", "@host/", ":\\/\\/", "-----BEGIN ", "PRIVATE KEY", "-----", "-----END ",
	`"password"`, `"token": `, `\"secret\":`, `\"`, `\\\"`, `"`, "'", `\`, `\n`, `\\n`, `\u0026`, "{", "}", "[", "]", ":", ",", "=", "==", "true", "false", "null", "12",
	"DB_PASSWORD=", "--api-key=", "?token=", "&access_token=", "Cookie: ", "a=b; ", "X-Api-Key: ", "Authorization: ",
	" ", "\n", ".", "-", "$", "<", "word", "x", "é", "世", "🔑", "\xe4", "\xb8", "\xff", "hunter2-hun", "aaaaaaa", "世界の",
	`"token": 48151623`, "-eyJ-eyJ", `"credentials": {"a": [1, "b"]}`, `{"a":"{\"token\":\"x\"}"}`,
}, streamSecrets...)

func randomText(rng *rand.Rand) string {
	var b strings.Builder
	for range 1 + rng.IntN(12) {
		f := fragments[rng.IntN(len(fragments))]
		switch rng.IntN(8) {
		case 0:
			f = f[:rng.IntN(len(f)+1)]
		case 1:
			f = strings.Repeat(f, rng.IntN(4))
		}
		b.WriteString(f)
	}
	return b.String()
}

// checkSplit streams in, cut by next, and compares with String.
func checkSplit(t *testing.T, r *Redactor, in string, next func(left int) int) {
	t.Helper()
	s := r.Stream()
	var out, parts []string
	for rest := in; rest != ""; {
		n := next(len(rest))
		parts = append(parts, rest[:n])
		out = append(out, s.Write(rest[:n]))
		if held := len(s.sc.buf) - s.done; held > 8<<10 {
			t.Fatalf("%d bytes held back", held)
		}
		rest = rest[n:]
	}
	out = append(out, s.Close())
	if got, want := strings.Join(out, ""), r.String(in); got != want {
		t.Fatalf("split %q\n got  %q\n want %q\n out  %q", parts, got, want, out)
	}
	for _, o := range out {
		if utf8.ValidString(in) && !utf8.ValidString(o) {
			t.Fatalf("output %q cuts a rune; input %q", o, parts)
		}
	}
}

func TestStreamEqualsString(t *testing.T) {
	r := New(Options{Secrets: streamSecrets})
	rng := rand.New(rand.NewPCG(7, 11))
	rounds := 6000
	if testing.Short() {
		rounds = 2000
	}
	for range rounds {
		in := randomText(rng)
		checkSplit(t, r, in, func(int) int { return 1 })
		checkSplit(t, r, in, func(left int) int { return 1 + rng.IntN(left) })
		checkSplit(t, r, in, func(left int) int { return min(left, 1+rng.IntN(20)) })
	}
}

func TestStreamOfLongTexts(t *testing.T) {
	long := strings.Repeat("long secret äöü ", 300)
	r := New(Options{Secrets: append([]string{long}, streamSecrets...)})
	rng := rand.New(rand.NewPCG(3, 5))
	run := strings.Repeat("abcdefghij0123456789", 1000)
	for name, in := range map[string]string{
		"value":       "x" + long + "y" + long[:2000] + "z",
		"jwt":         "ey" + "J" + run[:3000] + "." + run + " end",
		"no jwt":      "eyJ" + run + ". end",
		"jwt in data": strings.Repeat("eyJ-", 3000) + "eyJhbGciOi." + run[:50] + " " + strings.Repeat("eyJ-", 300) + "." + run,
		"token":       "sk-ant-" + run + " end",
		"bearer":      "Bearer " + run + " end",
		"basic":       "Basic " + run + " end",
		"pem":         "-----BEGIN PRIVATE KEY-----\n" + run + "\nand more",
		"string":      `"password": "` + run + `\\" end`,
		"slashes":     `"password": "` + strings.Repeat(`\`, 20001) + `" end"`,
		"slashes out": `"password": {` + strings.Repeat(`\`, 20001) + `" end"`,
		"slashes in":  `"password": {"` + strings.Repeat(`\`, 20001) + `" end"} x`,
		"object":      `"password": {"a":[` + strings.Repeat(`"x",`, 5000) + `1]} end`,
		"brackets":    `"password": ` + strings.Repeat(`[`, 20000) + " end",
		"url":         "https://" + run + ":" + run + "@" + run,
		"url near":    "https://" + run[:255] + ":" + run[:1000] + "@" + run[:30] + " x https://a:" + run[:1023] + "@",
		"assignment":  "DB_PASSWORD=" + run + " end",
		"blanks":      `"password":` + strings.Repeat(" ", 9000) + `"x"`,
		"key":         `"` + run + `password": "x"`,
		"names":       strings.Repeat("a_", 5000) + "PASSWORD=x",
	} {
		t.Run(name, func(t *testing.T) {
			checkSplit(t, r, in, func(int) int { return 1 })
			checkSplit(t, r, in, func(left int) int { return min(left, 1+rng.IntN(3000)) })
		})
	}
}

// TestStreamLooksBack cuts between a name and its value wherever the Stream may
// just have dropped old text.
func TestStreamLooksBack(t *testing.T) {
	r := New(Options{})
	for pad := keep; pad < keep+2*lookback; pad++ {
		in := strings.Repeat("x", pad) + `" "password"       : "y" AKI_` + strings.Repeat("Q", 40) + "_PASSWORD=z "
		checkSplit(t, r, in, func(int) int { return 1 })
		if got := r.String(in); strings.Count(got, Mark) != 2 {
			t.Fatalf("got %s", got)
		}
	}
}

// TestStreamHoldsBackOnlyBeginnings compares with the definition: all but the
// longest end that begins a form of a secret is out.
func TestStreamHoldsBackOnlyBeginnings(t *testing.T) {
	secret := "zqzqzzq!"
	r := New(Options{Secrets: []string{secret}})
	all := forms(secret)
	rng := rand.New(rand.NewPCG(5, 9))
	for range 500 {
		s, in, out := r.Stream(), "", ""
		for range 30 {
			c := string("zq! "[rng.IntN(4)])
			in += c
			out += s.Write(c)
			want := strings.ReplaceAll(in[:len(in)-heldBack(in, all)], secret, Mark)
			if out != want {
				t.Fatalf("after %q: out %q, want %q", in, out, want)
			}
			if strings.HasSuffix(in, secret) {
				break
			}
		}
	}
}

func heldBack(in string, forms []string) (n int) {
	for _, f := range forms {
		for k := 1; k <= len(f) && k <= len(in); k++ {
			if k < len(f) && k > n && strings.HasSuffix(in, f[:k]) {
				n = k
			}
		}
	}
	return n
}

func TestStreamIsPrompt(t *testing.T) {
	r := New(Options{Secrets: streamSecrets})
	for _, in := range []string{
		"Hello, this is ", "a sentence with a task-based ", "word: \"yes\" ", "x = y; ", "https://example.com/a ",
		"世界です。", `{"query":"weather","n":1,`, "1.5e3 ", "Bearer of news ", "user_password ", "12:30 o'clock. ",
	} {
		s := r.Stream()
		if got := s.Write(in); got != in {
			t.Errorf("%q: only %q came out", in, got)
		}
	}
	s := r.Stream()
	if got := s.Write("see sk-ant-api03-"); got != "see " {
		t.Errorf("got %q", got)
	}
	if got := s.Write("abcdefghij0123456789"); got != Mark {
		t.Errorf("a token that is long enough: %q", got)
	}
	if got := s.Write("abcdef. Then"); got != ". Then" {
		t.Errorf("after the token: %q", got)
	}
}

func TestStreamCanBeUsedAgain(t *testing.T) {
	r := New(Options{Secrets: streamSecrets})
	s := r.Stream()
	for _, in := range []string{"my hunter2-hun", "hunter2", "plain", ""} {
		if got, want := s.Write(in)+s.Close(), r.String(in); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestStreamOfArgsAgreesWithArgs(t *testing.T) {
	r := New(Options{Secrets: []string{"hunter2-hunter2"}})
	args := map[string]any{
		"password": "a\"b\\c\n", "n": json.Number("9007199254740993"), "list": []any{"hunter2-hunter2", true},
		"secret": map[string]any{"a": []any{1, "]}"}}, "token": 17, "api_key": false, "cookie": nil,
		"body": `{"client_secret":"x\"y","deep":"{\"token\":[1,\"\\\"\"],\"b\":\"hunter2-hunter2\"}"}`,
		"cmd":  "DB_PASSWORD='x y' run --token=abc " + fakeGitHub,
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	want, changed := r.Args(string(raw))
	if !changed {
		t.Fatal("not changed")
	}
	s := r.Stream()
	got := ""
	for i := range len(raw) {
		got += s.Write(string(raw[i : i+1]))
	}
	if got += s.Close(); got != want {
		t.Errorf("\n got  %s\n want %s", got, want)
	}
}

func FuzzStream(f *testing.F) {
	r := New(Options{Secrets: streamSecrets})
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 50 {
		f.Add(randomText(rng), uint64(i))
	}
	f.Fuzz(func(t *testing.T, in string, seed uint64) {
		if len(in) > 4096 {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		checkSplit(t, r, in, func(left int) int { return 1 + rng.IntN(left) })
		checkSplit(t, r, in, func(int) int { return 1 })
	})
}

func BenchmarkStreamWrite(b *testing.B) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("known-secret-%d-Zq%x", i, i*7919*7919))
	}
	words := strings.Fields(`The quick brown fox jumps over the lazy dog while a bearer of the news, "quoted": text =
		and some_code(x, y) runs; https://example.com/path?a=b isn't secret.`)
	for name, secrets := range map[string][]string{"none": nil, "one": many[:1], "hundred": many} {
		b.Run(name, func(b *testing.B) {
			var deltas []string
			for i := range words {
				d := ""
				for k := i; len(d) < 20; k++ {
					d += " " + words[k%len(words)]
				}
				deltas = append(deltas, d[:20])
			}
			s := New(Options{Secrets: secrets}).Stream()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s.Write(deltas[i%len(deltas)])
				i++
			}
		})
	}
}

func BenchmarkString(b *testing.B) {
	r := New(Options{Secrets: []string{"known-secret-1", "known-secret-2"}})
	in := strings.Repeat("The quick brown fox jumps over the lazy dog; nothing to hide here.\n", 1000)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		r.String(in)
	}
}
