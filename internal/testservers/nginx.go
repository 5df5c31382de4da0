package testservers

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// StartNginx starts nginx in the foreground with a complete configuration. Its pid, log and temporary files are set to
// a directory of its own, so the configuration must not set them. Call WaitReady with a URL of it.
func StartNginx(t testing.TB, conf string) *Process {
	t.Helper()
	bin, path, dir := nginxFiles(t, conf)
	return startFor(t, spec{
		name: "nginx", path: bin, args: []string{"-e", "stderr", "-p", dir, "-c", path, "-g", nginxGlobals},
		env: baseEnv(nil), dir: dir, stop: syscall.SIGTERM,
	})
}

// CheckNginx runs nginx -t over a complete configuration, with the same rules as StartNginx, and fails the test with
// what nginx says.
func CheckNginx(t testing.TB, conf string) {
	t.Helper()
	bin, path, dir := nginxFiles(t, conf)
	cmd := exec.Command(bin, "-t", "-e", "stderr", "-p", dir, "-c", path, "-g", nginxGlobals)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nginx -t: %v\n%s\nof\n%s", err, out, conf)
	}
}

const nginxGlobals = "daemon off; master_process off; pid nginx.pid; error_log stderr info;"

// nginxPaths are relative to the server's directory; the built-in ones belong to the distribution's user.
const nginxPaths = ` client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi; scgi_temp_path scgi;
`

func nginxFiles(t testing.TB, conf string) (bin, path, dir string) {
	t.Helper()
	bin, dir = Tool(t, "nginx"), testDir(t, "nginx")
	path, err := writeFile(dir, "nginx.conf", strings.Replace(conf, "http {", "http {"+nginxPaths, 1))
	if err != nil {
		t.Fatal(err)
	}
	return bin, path, dir
}
