package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// Fakes are put together from parts so that no scanner takes this file for a
// leak.
var (
	fakeAnt    = "sk-" + "ant-api03-Zm9vYmFy_Zm9vYmFy-1234567890"
	fakeOpenAI = "sk-" + "proj-T3BlbkFJabcdefghij0123456789"
	fakeGitHub = "gh" + "p_abcdefghijklmnopqrstuvwxyz0123456789"
	fakePAT    = "github" + "_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz"
	fakeSlack  = "xox" + "b-123456789012-abcdefghijkl"
	fakeAWS    = "AKI" + "AIOSFODNN7EXAMPLE"
	fakeSTS    = "ASI" + "AIOSFODNN7EXAMPLE"
	fakeGoogle = "AI" + "zaSyA1234567890abcdefghijklmnopqrstu"
	fakeGitLab = "gl" + "pat-abcdefghij0123456789"
	fakeJWT    = "ey" + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
	fakePEM    = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF0ql\n-----END RSA PRIVATE KEY-----"
)

func TestTokenShapes(t *testing.T) {
	r := New(Options{})
	for name, c := range map[string][2]string{
		"anthropic":       {"key " + fakeAnt + ", ok", "key [redacted], ok"},
		"openai":          {"key=" + fakeOpenAI + "\n", "key=[redacted]\n"},
		"openai old":      {"sk-" + "abcdefghijklmnopqrstuvwxyzABCDEF", "[redacted]"},
		"two words":       {"sk-" + "test-1234567890abcdef", "[redacted]"},
		"hex key":         {"sk-" + "0123456789abcdef0123456789abcdef", "[redacted]"},
		"github":          {"(" + fakeGitHub + ")", "([redacted])"},
		"github pat":      {"x " + fakePAT + " y", "x [redacted] y"},
		"in a url":        {"https://" + fakeGitHub + "@github.com/a", "https://[redacted]@github.com/a"},
		"slack":           {fakeSlack + ".", "[redacted]."},
		"aws":             {"id " + fakeAWS + " ", "id [redacted] "},
		"aws session":     {fakeSTS, "[redacted]"},
		"google":          {"?x=" + fakeGoogle + "&y", "?x=[redacted]&y"},
		"gitlab":          {fakeGitLab, "[redacted]"},
		"jwt":             {"t: " + fakeJWT + " end", "t: [redacted] end"},
		"bearer":          {"Bearer abcdefghij0123456789==", "Bearer [redacted]"},
		"bearer lower":    {"authorization: bearer abcdefghij0123456789", "authorization: bearer [redacted]"},
		"basic":           {"Basic " + base64.StdEncoding.EncodeToString([]byte("aladdin:open sesame")) + ";", "Basic [redacted];"},
		"basic short":     {"Basic " + base64.StdEncoding.EncodeToString([]byte("abc:")), "Basic [redacted]"},
		"url":             {"postgres://bob:hunter2@db:5432/x", "postgres://bob:[redacted]@db:5432/x"},
		"url no user":     {"redis://:hunter2@cache", "redis://:[redacted]@cache"},
		"url escaped":     {`"https:\/\/bob:hunter2@h\/"`, `"https:\/\/bob:[redacted]@h\/"`},
		"pem":             {"a\n" + fakePEM + "\nb", "a\n[redacted]\nb"},
		"pem cut off":     {fakePEM[:90], "[redacted]"},
		"pem one line":    {"-----BEGIN PRIVATE KEY----- MIIEvQIBADANBgkqhkiG -----END PRIVATE KEY-----.", "[redacted]."},
		"pem escaped":     {`{"k":"` + strings.ReplaceAll(fakePEM, "\n", `\n`) + `","b":1}`, `{"k":"[redacted]","b":1}`},
		"pem crlf twice":  {`\"` + strings.ReplaceAll(fakePEM, "\n", `\\r\\n`) + `\"`, `\"[redacted]\"`},
		"after newline":   {`{"a":"x\n` + fakeGitHub + `"}`, `{"a":"x\n[redacted]"}`},
		"after u000a":     {`"x\u000a` + fakeGitHub + `"`, `"x\u000a[redacted]"`},
		"after %20":       {"q=a%20" + fakeGitHub, "q=a%20[redacted]"},
		"two neighbours":  {fakeAWS + "," + fakeAWS, "[redacted],[redacted]"},
		"in other script": {"鍵は" + fakeGitHub + "です", "鍵は[redacted]です"},
	} {
		if got := r.String(c[0]); got != c[1] {
			t.Errorf("%s:\n in   %q\n got  %q\n want %q", name, c[0], got, c[1])
		}
	}
}

func TestNamesInText(t *testing.T) {
	r := New(Options{Keys: []string{"taxId"}})
	for in, want := range map[string]string{
		`{"password":"hunter2","a":1}`:               `{"password":"[redacted]","a":1}`,
		`{"password" : "hun\"ter\\","a":1}`:          `{"password" : "[redacted]","a":1}`,
		`{"apiKey":12345,"a":1}`:                     `{"apiKey":"[redacted]","a":1}`,
		`{"secret":true,"a":1}`:                      `{"secret":"[redacted]","a":1}`,
		`{"secret":null,"token":""}`:                 `{"secret":null,"token":""}`,
		`{"credentials":{"a":["}",{}]},"b":2}`:       `{"credentials":"[redacted]","b":2}`,
		`{"TAX_ID":"1"}`:                             `{"TAX_ID":"[redacted]"}`,
		`{"password":"hun`:                           `{"password":"[redacted]`,
		`{"a":"{\"password\":\"hun\\\"ter\",\"b\"}`:  `{"a":"{\"password\":\"[redacted]\",\"b\"}`,
		`{"a":"{\"token\":17,\"b\":1}"}`:             `{"a":"{\"token\":\"[redacted]\",\"b\":1}"}`,
		`{"a":"{\"token\":{\"b\":\"x\\"}`:            `{"a":"{\"token\":\"[redacted]\"\\"}`,
		`{"a":"{\"cookies\":[\"x\\\"]\",\n1]}"}`:     `{"a":"{\"cookies\":\"[redacted]\"}"}`,
		`{'password': 'hunter2', 'x': None}`:         `{'password': '[redacted]', 'x': None}`,
		"export DB_PASSWORD=hunter2\nX=1":            "export DB_PASSWORD=[redacted]\nX=1",
		`GITHUB_TOKEN="abc def" run`:                 `GITHUB_TOKEN="[redacted]" run`,
		`"A=1\nDB_PASSWORD=x\nB=2"`:                  `"A=1\nDB_PASSWORD=[redacted]\nB=2"`,
		`{"c":"API_KEY=\"a b\" go"}`:                 `{"c":"API_KEY=\"[redacted]\" go"}`,
		`{"c":"API_KEY=","d":"x"}`:                   `{"c":"API_KEY=","d":"x"}`,
		"curl --api-key=abc123 -v":                   "curl --api-key=[redacted] -v",
		"GET /x?api_key=abc&n=1 HTTP":                "GET /x?api_key=[redacted]&n=1 HTTP",
		`"u":"/x?n=1\u0026access_token=abc"`:         `"u":"/x?n=1\u0026access_token=[redacted]"`,
		"Server=x;Password=hunter2;Db=y":             "Server=x;Password=[redacted];Db=y",
		"Cookie: sid=abc; theme=dark\r\nHost: x":     "Cookie: [redacted]\r\nHost: x",
		"> set-cookie: sid=abc; Path=/\n":            "> set-cookie: [redacted]\n",
		"x-api-key: abcdef123456\n":                  "x-api-key: [redacted]\n",
		"Authorization: token abcdef123456":          "Authorization: token [redacted]",
		`curl -H "Authorization: abcdef123456" h`:    `curl -H "Authorization: [redacted]" h`,
		`{"Authorization":"Bearer x"}`:               `{"Authorization":"[redacted]"}`,
		`{"max_tokens":5,"usage":{"input_tokens":7}`: `{"max_tokens":5,"usage":{"input_tokens":7}`,
	} {
		if got := r.String(in); got != want {
			t.Errorf("String\n in   %s\n got  %s\n want %s", in, got, want)
		}
	}
}

func TestSensitiveNames(t *testing.T) {
	r := New(Options{Keys: []string{"Tax-ID"}}).rules.Load()
	yes := `password Password PASSWORD db_password dbPassword passwd userPasswd secret client_secret clientSecret
		CLIENT-SECRET clientsecret token Token access_token accessToken refresh-token sessionToken id_token authToken
		APIToken developerToken developer_token api_key apiKey apikey API_KEY APIKey x-api-key OPENAI_API_KEY authorization Authorization
		proxy-authorization cookie Cookie set-cookie setCookie cookies private_key privateKey access_key accessKey
		AWS_SECRET_ACCESS_KEY credential credentials sshKey password2 db_pwd jwt passphrase tax_id taxId TAXID csrf-token`
	no := `tokens max_tokens maxTokens input_tokens output_tokens total_tokens token_count tokenCount tokens_used
		completion_tokens_details token_type tokenizer next_page_token nextPageToken nextToken pageToken page_token
		progressToken max_token per_token cost_per_token first_token input_token cached_token pad_token has_password
		is_secret password_policy secret_name secretary tokenize key keys public_key primary_key keyboard monkey
		pwd PWD OLDPWD session_id run_id author authority cookie_policy name idempotency_key passed compass bypass`
	for _, k := range strings.Fields(yes) {
		if !r.sensitive([]byte(k)) {
			t.Errorf("%s is not sensitive", k)
		}
	}
	for _, k := range strings.Fields(no) {
		if r.sensitive([]byte(k)) {
			t.Errorf("%s is sensitive", k)
		}
	}
}

func TestKnownValueForms(t *testing.T) {
	secret := `pä"ss/w+rd & <x>` + "\n" + `\end`
	r := New(Options{Secrets: []string{secret}})
	quoted, _ := json.Marshal(secret)
	twice, _ := json.Marshal(string(quoted))
	forms := map[string]string{
		"raw":          secret,
		"json":         string(quoted[1 : len(quoted)-1]),
		"json twice":   strings.Trim(string(twice), `"\`),
		"json ascii":   `p\u00e4\"ss/w+rd & <x>\n\\end`,
		"json slashes": `pä\"ss\/w+rd & <x>\n\\end`,
		"query":        url.QueryEscape(secret),
		"path":         url.PathEscape(secret),
		"lower hex":    lowerPercent(url.QueryEscape(secret)),
		"component":    strings.ReplaceAll(url.QueryEscape(secret), "+", "%20"),
	}
	for name, f := range forms {
		if got := r.String("a" + f + "b"); got != "a[redacted]b" {
			t.Errorf("%s: %q became %q", name, f, got)
		}
	}
	for before := range 4 {
		for after := range 4 {
			plain := strings.Repeat("~", before) + secret + strings.Repeat("~", after)
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
				got := r.String(enc.EncodeToString([]byte(plain)))
				rest := strings.Replace(got, Mark, "", 1)
				if rest == got || len(rest) > 8+4 {
					t.Errorf("base64 of %d+secret+%d: %q", before, after, got)
				}
			}
		}
	}
}

func TestKnownValuesThatOverlap(t *testing.T) {
	r := New(Options{Secrets: []string{"abcdef", "abcdefgh", "ghijkl", "mnopqrstuv", "opqrst", "  padded-value\n", "short", ""}})
	for in, want := range map[string]string{
		"xabcdefx":         "x[redacted]x",
		"xabcdefghx":       "x[redacted]x",
		"xabcdefghijklx":   "x[redacted]x",
		"abcdefabcdef":     "[redacted]",
		"abcdeabcdef":      "abcde[redacted]",
		"mnopqrsty":        "mn[redacted]y",
		"a padded-value b": "a [redacted] b",
		"a short one":      "a short one",
	} {
		if got := r.String(in); got != want {
			t.Errorf("String(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLongKnownValue(t *testing.T) {
	long := strings.Repeat("0123456789é", 900)
	r := New(Options{Secrets: []string{long}})
	for _, in := range []string{long, "a" + long + "b", base64.StdEncoding.EncodeToString([]byte(long))} {
		if got := r.String(in); len(got) > len(Mark)+8 {
			t.Errorf("%d bytes remain of a long secret", len(got))
		}
	}
}

func TestEndlessKeyBlock(t *testing.T) {
	in := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn\n", 1000)
	got := New(Options{}).String(in)
	if cut := len(in) - len(got); cut < maxPEM || cut > maxPEM+200 {
		t.Errorf("%d bytes were taken out", cut)
	}
}

// TestManySecrets is quick only if the cost does not grow faster than the text.
func TestManySecrets(t *testing.T) {
	r := New(Options{Secrets: []string{"hunter2-hunter2"}})
	for in, want := range map[string]string{
		"hunter2-hunter2 " + fakeAWS + " ": "[redacted] [redacted] ",
		"eyJ-":                             "eyJ-",
		`"token":[ `:                       "",
		`"token":"\\" `:                    `"token":"[redacted]" `,
		"a://b:c ":                         "a://b:c ",
	} {
		got := r.String(strings.Repeat(in, 100_000))
		if want != "" && got != strings.Repeat(want, 100_000) {
			t.Errorf("%s: got %d bytes", in, len(got))
		}
	}
}

func TestLearn(t *testing.T) {
	r := New(Options{})
	s := r.Stream()
	out := s.Write("one late-secret two ")
	r.Learn("late-secret")
	out += s.Write("late-sec") + s.Write("ret three") + s.Close()
	if want := "one late-secret two [redacted] three"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if got := r.String("late-secret"); got != Mark {
		t.Errorf("got %q", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	r := New(Options{Secrets: []string{"first-secret"}})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			mine := "secret-number-" + string(rune('a'+i))
			r.Learn(mine)
			for range 50 {
				s := r.Stream()
				got := s.Write("x first-sec") + s.Write("ret "+mine[:5]) + s.Write(mine[5:]) + s.Close()
				if got != "x [redacted] [redacted]" {
					t.Errorf("stream: %q", got)
				}
				if got := r.String(mine + "!"); got != "[redacted]!" {
					t.Errorf("string: %q", got)
				}
			}
		}()
	}
	wg.Wait()
}
