package testservers

import (
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

// StartCaddy starts Caddy with a Caddyfile that has no global options. Call WaitReady with a URL of it.
func StartCaddy(t testing.TB, caddyfile string) *Process {
	t.Helper()
	bin, dir := Tool(t, "caddy"), testDir(t, "caddy")
	path, err := writeFile(dir, "Caddyfile", "{\n\tadmin off\n}\n"+caddyfile)
	if err != nil {
		t.Fatal(err)
	}
	return startFor(t, spec{
		name: "caddy", path: bin, args: []string{"run", "--adapter", "caddyfile", "--config", path},
		env: baseEnv([]string{"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}), dir: dir,
	})
}
