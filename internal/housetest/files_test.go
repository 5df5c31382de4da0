package housetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A forbidden text ties the repository to one registry or one machine. The patterns are written so that this file
// does not match itself.
var forbidden = map[string]*regexp.Regexp{
	"the host of a registry": regexp.MustCompile(`(?i)\b(proxy[.]golang[.]org|sum[.]golang[.]org|goproxy[.](io|cn)|` +
		`registry[.]npmjs[.]org|registry[.]yarnpkg[.]com|registry[.]npmmirror[.]com|pypi[.]org|files[.]pythonhosted[.]org|` +
		`index[.]crates[.]io|deb[.]debian[.]org)\b`),
	"a path of one machine": regexp.MustCompile(`(^|[\s"'=:(\x60])/(root|work|Users|home/[a-z]+)/[\w.]`),
	"an internal address":   regexp.MustCompile(`\b(10[.]\d{1,3}|192[.]168|172[.](1[6-9]|2\d|3[01]))[.]\d{1,3}[.]\d{1,3}:\d+`),
}

func TestNothingOfOneMachineInTheRepository(t *testing.T) {
	root := filepath.Dir(goEnv(t, "GOMOD"))
	for _, name := range tracked(t, root) {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || bytes.IndexByte(data, 0) >= 0 {
			continue // deleted and not committed yet; or binary
		}
		for what, pattern := range forbidden {
			if at := pattern.FindIndex(data); at != nil {
				line := 1 + bytes.Count(data[:at[0]], []byte("\n"))
				t.Errorf("%s:%d names %s: %q", name, line, what, strings.TrimSpace(string(data[at[0]:at[1]])))
			}
		}
	}
}

func TestForbiddenTextsAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"see https://proxy.golang" + ".org/x":             "the host of a registry",
		`"resolved": "https://registry.npmjs` + `.org/a"`: "the host of a registry",
		"dir = \"/ro" + "ot/x\"":                          "a path of one machine",
		"cd /wo" + "rk/main":                              "a path of one machine",
		"http://10.1" + ".2.3:8080":                       "an internal address",
	} {
		if !forbidden[want].MatchString(text) {
			t.Errorf("%q is not seen as %s", text, want)
		}
	}
	for _, text := range []string{"GET /v1/runs", "docs/work/x", "/usr/bin/env", "http://127.0.0.1:8080", "a/root/b"} {
		for what, pattern := range forbidden {
			if pattern.MatchString(text) {
				t.Errorf("%q is taken for %s", text, what)
			}
		}
	}
}

// One version of nats-server: the one that is embedded and the one that tests run as a process.
func TestOneVersionOfNATSServer(t *testing.T) {
	root := filepath.Dir(goEnv(t, "GOMOD"))
	versions := map[string]string{}
	for _, file := range []string{"go.mod", "tools/go.mod"} {
		versions[file] = requires(t, filepath.Join(root, file), "github.com/nats-io/nats-server/v2")
	}
	if versions["go.mod"] != versions["tools/go.mod"] {
		t.Errorf("nats-server has two versions: %v", versions)
	}
}

func requires(t *testing.T, file, path string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(path) + ` (v\S+)`).FindSubmatch(data)
	if match == nil {
		t.Fatalf("%s does not require %s", file, path)
	}
	return string(match[1])
}

// tracked returns the files under version control, as slash-separated paths below root.
func tracked(t *testing.T, root string) []string {
	t.Helper()
	cmd := exec.Command("git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z")
	out, err := cmd.Output()
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("git ls-files: %v: not a git checkout", err)
	} else if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	names := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	if len(names) < 10 {
		t.Fatalf("git knows only %d files", len(names))
	}
	return names
}

func goEnv(t *testing.T, key string) string {
	t.Helper()
	out, err := exec.Command("go", "env", key).Output()
	if err != nil {
		t.Fatalf("go env %s: %v", key, err)
	}
	return strings.TrimSpace(string(out))
}
