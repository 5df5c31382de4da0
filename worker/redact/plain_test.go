package redact

import (
	"encoding/base64"
	"encoding/json"
	"go/build"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// plain are texts in which nothing is secret.
var plain = map[string]string{
	"prose": `The password must have at least 12 characters. Token: a unit of text. Bearer of bad news, the
		bearer tokens are described in RFC 6750; Bearer authentication-and-authorization is common. Basic
		understanding of cookies: they are small. Basic programming, Basic Authentication, BASIC interpreters.
		A risk-adjusted, task-oriented, desk-bound person said: "token", "secret": two words. "key": "value".
		Cookie: a small file. Authorization: the process of deciding. Secret: nobody knows. It's 'password': see below.
		My api key = unknown; don't ask. -----BEGIN PRIVATE KEY----- is how such a file begins. 50%20 percent.`,
	"go": `token := lexer.next(); password := os.Getenv("DB_PASSWORD")
		func login(user, password string) (token string, err error) { secret := cfg.Secret; return }
		if token == "" || strings.HasPrefix(s, "-----BEGIN RSA PRIVATE KEY-----") { maxTokens = 5 }
		req.Header.Set("Authorization", "Bearer "+token); fmt.Printf("token=%s password: %v", a, b)
		h := Header{"Set-Cookie": {cs}}; m := M{"passwd": {{source: "compat"}}}; say(` + "`x\\\"token\": \"y\"`" + `)
		type T struct { Password string ` + "`json:\"password\"`" + ` }`,
	"python": `client.login(password=password, token=None); api_key = os.environ["API_KEY"]
		for token in tokens: print(f"{token=}"); def f(secret: str = "", token: Optional[str] = None) -> None: pass
		headers = {'Authorization': f'Bearer {token}'} if 0 else d['password']
		sk-learn, sk-circle-fade-dot-container, sk-folding-cube, sk-container-id-1, hf_hub_download_with_progress, sk-ecdsa-sha2-nistp256-cert-v01@openssh.com,
		Authorization: AWS4-HMAC-SHA256 Credential=x, ghp_short`,
	"shell": `export API_KEY=$KEY TOKEN=${TOKEN:-x} PASSWORD=<password> SECRET=*** MAX_TOKENS=4096 PWD=/home/x
		TOKEN=$(get-token); if [ "$TOKEN" == "" ]; then API_KEY="$OTHER"; fi; GITHUB_TOKEN={{ secrets.X }} API_KEY=...
		((TOKEN==1)) && [[ $X =~ API_KEY==abc ]]
		curl -H "Authorization: Bearer $TOKEN" -H "X-Api-Key: $KEY" https://user@host:8080/a:b@c http://localhost:3000/x@y
		postgres://user:${PASSWORD}@host/db https://host:443/path?next_page_token=abc&max_tokens=5&q=a:b@c mailto:a@b.c`,
	"json":     `{"usage":{"input_tokens":9007199254740993,"max_tokens":1},"token_count":3,"nextPageToken":"abc","a":"b: c"}`,
	"markdown": "---\n\n----- \n------BEGIN\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n-----BEGIN PUBLIC KEY-----\nMIIB\n",
	"ids": `550e8400-e29b-41d4-a716-446655440000 ses_01HZX3Y8Q2 run_9f8e7d6c5b4a call_abc123 0xdeadbeefdeadbeef
		sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 ASIAPACIFICHEADQUARTERS AKIA akia
		arn:aws:iam::123456789012:role/x 2024-01-02T03:04:05.678901Z msg-eyJ eyJ eyJhbGciOiJIUzI1NiJ9 eyJhbGciOi.json`,
	"source map": "//# sourceMappingURL=data:application/json;base64,ey" + "J2ZXJzaW9uIjozLCJzb3VyY2VzIjpbXX0=\n",
	"scripts":    "Пароль: неизвестен. 密码是什么？ رمز 🔑 token ",
}

func TestPlainTextStays(t *testing.T) {
	r := New(Options{Secrets: []string{"correct horse battery staple"}})
	for name, in := range plain {
		if got := r.String(in); got != in {
			t.Errorf("%s\n in   %s\n got  %s", name, in, got)
		}
	}
}

func TestRandomDataStays(t *testing.T) {
	r := New(Options{Secrets: []string{"hunter2-hunter2", "another secret value"}})
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for name, in := range map[string]string{
		"image":  "data:image/png;base64," + base64.StdEncoding.EncodeToString(b),
		"url64":  base64.URLEncoding.EncodeToString(b),
		"binary": string(b),
	} {
		if got := r.String(in); got != in {
			t.Errorf("%s: changed, %d bytes became %d", name, len(in), len(got))
		}
		doc, err := json.Marshal(map[string]string{"data": in})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.JSON(doc); &got[0] != &doc[0] {
			t.Errorf("%s in JSON: copied or changed", name)
		}
	}
}

// TestStandardLibraryStays reads much real code, in which next to nothing is
// secret (an example URL with a password in net/url, say).
func TestStandardLibraryStays(t *testing.T) {
	r := New(Options{})
	files, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", "[a-z]*", "[a-z]*.go"))
	if err != nil || len(files) == 0 {
		t.Skip("no Go source here; set GOROOT to a full installation")
	}
	changed := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if r.String(string(b)) != string(b) {
			t.Logf("changed: %s", f)
			changed++
		}
	}
	if changed*200 > len(files) {
		t.Errorf("%d of %d files changed", changed, len(files))
	}
}
