package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// composeFile is as much of docker-compose.yml as can be checked without a container engine.
type composeFile struct {
	Services map[string]service `yaml:"services"`
	Networks map[string]any     `yaml:"networks"`
	Volumes  map[string]any     `yaml:"volumes"`
}

type service struct {
	Image       string            `yaml:"image"`
	Build       string            `yaml:"build"`
	Command     []string          `yaml:"command"`
	Entrypoint  []string          `yaml:"entrypoint"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	Networks    []string          `yaml:"networks"`
	DependsOn   any               `yaml:"depends_on"`
	Healthcheck map[string]any    `yaml:"healthcheck"`
	Restart     string            `yaml:"restart"`
	Profiles    []string          `yaml:"profiles"`
}

func compose(t *testing.T) composeFile {
	t.Helper()
	var f composeFile
	if err := yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testservers.Root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestComposeHasTheTopologyOfProduction(t *testing.T) {
	f := compose(t)
	count := map[string]int{}
	for _, s := range f.Services {
		image, _, _ := strings.Cut(s.Image, ":")
		if image == "runlog" && len(s.Command) > 0 {
			image = "runlog " + s.Command[0]
		}
		count[image]++
	}
	for image, want := range map[string]int{
		"nats": 3, "postgres": 1, "versity/versitygw": 1, "nginx": 1, "prom/prometheus": 1,
		"runlog edge": 2, "runlog worker": 2, "runlog migrate": 1,
	} {
		if count[image] != want {
			t.Errorf("%d services of %s, want %d", count[image], image, want)
		}
	}
}

func TestComposeDependenciesExist(t *testing.T) {
	f := compose(t)
	for name, s := range f.Services {
		for on, condition := range dependencies(t, s) {
			other, ok := f.Services[on]
			switch {
			case !ok:
				t.Errorf("%s depends on %s, which does not exist", name, on)
			case len(other.Profiles) > 0:
				t.Errorf("%s depends on %s, which up does not start", name, on)
			case condition == "service_healthy" && other.Healthcheck == nil:
				t.Errorf("%s waits for the health of %s, which has no healthcheck", name, on)
			case condition == "service_completed_successfully" && (other.Restart == "always" || other.Restart == "unless-stopped"):
				t.Errorf("%s waits for the end of %s, which restarts for ever", name, on)
			}
		}
	}
}

// dependencies returns the condition for each service that s depends on.
func dependencies(t *testing.T, s service) map[string]string {
	t.Helper()
	on := map[string]string{}
	switch d := s.DependsOn.(type) {
	case nil:
	case []any:
		for _, name := range d {
			on[name.(string)] = "service_started"
		}
	case map[string]any:
		for name, how := range d {
			on[name] = how.(map[string]any)["condition"].(string)
		}
	default:
		t.Fatalf("depends_on has a form compose does not know: %T", d)
	}
	for _, condition := range on {
		if !slices.Contains([]string{"service_started", "service_healthy", "service_completed_successfully"}, condition) {
			t.Errorf("condition %q does not exist", condition)
		}
	}
	return on
}

func TestComposeMountsExist(t *testing.T) {
	f := compose(t)
	used := map[string]bool{}
	for name, s := range f.Services {
		for _, mount := range s.Volumes {
			source, target, ok := strings.Cut(mount, ":")
			if !ok || !strings.HasPrefix(target, "/") {
				t.Errorf("%s: mount %q is not SOURCE:/TARGET", name, mount)
			}
			if !strings.HasPrefix(source, ".") {
				used[source] = true
				continue
			}
			if _, err := os.Stat(filepath.Join(testservers.Root(t), source)); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
		for _, network := range s.Networks {
			if _, ok := f.Networks[network]; !ok {
				t.Errorf("%s: no network %s", name, network)
			}
		}
	}
	for volume := range f.Volumes {
		if !used[volume] {
			t.Errorf("volume %s is used by nobody", volume)
		}
		delete(used, volume)
	}
	for volume := range used {
		t.Errorf("volume %s is not declared", volume)
	}
}

func TestComposeKeepsToItself(t *testing.T) {
	for name, s := range compose(t).Services {
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s beyond loopback, with the passwords of a first look", name, port)
			}
		}
	}
}

var pinned = regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+`)

func TestImagesArePinned(t *testing.T) {
	f := compose(t)
	for name, s := range f.Services {
		if s.Build == "" && !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q has no version", name, s.Image)
		}
	}
	from := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1)
	if len(from) < 2 {
		t.Fatalf("Dockerfile has %d stages, want a builder and what is shipped", len(from))
	}
	for _, image := range from {
		if !pinned.MatchString(image[1]) {
			t.Errorf("Dockerfile: image %q has no version", image[1])
		}
	}
}

// What is tested is what is shipped.
func TestImagesHaveTheTestedVersions(t *testing.T) {
	f, tools := compose(t), read(t, "tools/go.mod")
	for module, services := range map[string][]string{
		"github.com/nats-io/nats-server/v2": {"nats1", "nats2", "nats3"},
		"github.com/versity/versitygw":      {"s3"},
	} {
		version := regexp.MustCompile(regexp.QuoteMeta(module) + ` v(\d+\.\d+\.\d+)`).FindStringSubmatch(tools)
		if version == nil {
			t.Fatalf("tools/go.mod does not require %s", module)
		}
		for _, name := range services {
			if !strings.Contains(f.Services[name].Image, version[1]) {
				t.Errorf("%s has image %s, tests run version %s", name, f.Services[name].Image, version[1])
			}
		}
	}
	want := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	if !strings.Contains(read(t, "Dockerfile"), "golang:"+want[1]+".") {
		t.Errorf("Dockerfile builds with another Go than the %s of go.mod", want[1])
	}
}

func TestDockerfileRunsAsNobody(t *testing.T) {
	user := regexp.MustCompile(`(?m)^USER (\S+)`).FindStringSubmatch(read(t, "Dockerfile"))
	if user == nil || user[1] == "root" || strings.HasPrefix(user[1], "0") {
		t.Errorf("the image runs as %v", user)
	}
}

// A setting that the command does not read is one that somebody misspelt.
func TestSettingsAreKnown(t *testing.T) {
	all := map[string]bool{"RUNLOG_PORT": true, "RUNLOG_BIN": true} // of deploy/local/up itself
	for name, s := range compose(t).Services {
		args := slices.Concat(s.Entrypoint, s.Command)
		if s.Build == "" || len(args) == 0 {
			continue
		}
		known := settingsOf(t, args)
		for key := range s.Environment {
			if !known[key] {
				t.Errorf("docker-compose.yml, %s: runlog %v does not read %s", name, args, key)
			}
		}
		maps.Copy(all, known)
	}
	used := regexp.MustCompile(`RUNLOG_[A-Z_]+`).FindAllString(read(t, "deploy/local/up"), -1)
	slices.Sort(used)
	for _, key := range slices.Compact(used) {
		if !all[key] {
			t.Errorf("deploy/local/up: runlog does not read %s", key)
		}
	}
}

// settingsOf returns the variables that a command's help names.
func settingsOf(t *testing.T, args []string) map[string]bool {
	t.Helper()
	if args[0] == "runlog" {
		args = append(args[1:], "list") // keys wants a verb
	}
	cmd := exec.Command(testservers.RunlogBinary(t), append(args, "-h")...)
	out, err := cmd.CombinedOutput()
	known := map[string]bool{}
	for _, name := range regexp.MustCompile(`RUNLOG_[A-Z0-9_]+`).FindAllString(string(out), -1) {
		known[name] = true
	}
	if err != nil || len(known) == 0 {
		t.Fatalf("runlog %v -h names no setting: %v\n%s", args, err, out)
	}
	return known
}

func TestPrometheusAndNginxNameServices(t *testing.T) {
	f := compose(t)
	var scrape struct {
		Jobs []struct {
			Configs []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/prometheus.yml")), &scrape); err != nil {
		t.Fatal(err)
	}
	var scraped []string
	for _, job := range scrape.Jobs {
		for _, c := range job.Configs {
			scraped = append(scraped, c.Targets...)
		}
	}
	proxied := upstreams(t)
	for name, s := range f.Services {
		if len(s.Command) == 0 || (s.Command[0] != "edge" && s.Command[0] != "worker") {
			continue
		}
		if target := name + portOf(s.Environment["RUNLOG_ADMIN_LISTEN"]); !slices.Contains(scraped, target) {
			t.Errorf("Prometheus does not scrape %s: it has %v", target, scraped)
		}
		if s.Command[0] != "edge" {
			continue
		}
		if target := name + portOf(s.Environment["RUNLOG_LISTEN"]); !slices.Contains(proxied, target) {
			t.Errorf("nginx does not know the edge %s: it has %v", target, proxied)
		}
	}
	if len(scraped) != 4 || len(proxied) != 2 {
		t.Errorf("more names than services: scraped %v, proxied %v", scraped, proxied)
	}
}

// portOf returns ":PORT" of an address to listen on.
func portOf(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return ":" + port
}

func TestNATSConfigurationIsValid(t *testing.T) {
	cmd := exec.Command(testservers.Tool(t, "nats-server"), "-t", "-c", filepath.Join(testservers.Root(t), "deploy/nats/nats.conf"))
	cmd.Env = append(os.Environ(), "NATS_NAME=nats1", "NATS_PASSWORD=secret")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("nats-server -t: %v\n%s", err, out)
	}
	for name, s := range compose(t).Services {
		if !strings.HasPrefix(s.Image, "nats:") {
			continue
		}
		if s.Environment["NATS_NAME"] != name || s.Environment["NATS_PASSWORD"] == "" {
			t.Errorf("%s has the environment %v", name, s.Environment)
		}
	}
}
