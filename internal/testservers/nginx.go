package testservers

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// StartNginx starts nginx in the foreground with a complete configuration. %DIR% in it stands for an empty directory
// that belongs to this server; pid, error_log and the temporary paths are set to files below it, so that the
// configuration should not set them. Call WaitReady with a URL of it.
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

func nginxFiles(t testing.TB, conf string) (bin, path, dir string) {
	t.Helper()
	bin, err := exec.LookPath("nginx")
	if err != nil {
		bin, err = exec.LookPath("/usr/sbin/nginx")
	}
	if err != nil {
		missing(t, "nginx is not installed: run make test, or apt-get install nginx")
	}
	dir = testDir(t, "nginx")
	path, err = writeFile(dir, "nginx.conf", strings.ReplaceAll(conf, "%DIR%", dir))
	if err != nil {
		t.Fatal(err)
	}
	return bin, path, dir
}
