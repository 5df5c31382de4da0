package testservers

import (
	"strings"
	"testing"
)

// StartHAProxy starts HAProxy with a configuration, which must log to stdout. Call WaitReady with a URL of it.
func StartHAProxy(t testing.TB, conf string) *Process {
	t.Helper()
	bin, dir := Tool(t, "haproxy"), testDir(t, "haproxy")
	path, err := writeFile(dir, "haproxy.cfg", conf)
	if err != nil {
		t.Fatal(err)
	}
	return startFor(t, spec{name: "haproxy", path: bin, args: []string{"-db", "-f", path}, env: baseEnv(nil), dir: dir})
}

// StartCaddy starts Caddy with a Caddyfile that does not say where its admin endpoint is. Call WaitReady with a URL of it.
func StartCaddy(t testing.TB, caddyfile string) *Process {
	t.Helper()
	bin, dir := Tool(t, "caddy"), testDir(t, "caddy")
	const options = "\n{\n" // they begin so, at the top or after a comment
	if !strings.Contains(caddyfile, options) {
		caddyfile = options + "}\n" + caddyfile
	}
	path, err := writeFile(dir, "Caddyfile", strings.Replace(caddyfile, options, options+"\tadmin off\n", 1))
	if err != nil {
		t.Fatal(err)
	}
	return startFor(t, spec{
		name: "caddy", path: bin, args: []string{"run", "--adapter", "caddyfile", "--config", path},
		env: baseEnv([]string{"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}), dir: dir,
	})
}
