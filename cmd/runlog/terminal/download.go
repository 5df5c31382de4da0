package terminal

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

func artifactCommand(ctx context.Context, env Env, args []string) error {
	f := env.flags()
	out := f.String("o", "", "file to write, - for standard output (default: the artifact's own name, here)")
	args, err := f.parse(args, 2, 2)
	if err != nil {
		return err
	}
	if args[0] != "get" {
		return usageError(fmt.Sprintf("unknown word %q", args[0]))
	}
	if f.json && *out == "-" {
		return usageError("--json and -o - would mix on standard output")
	}
	a, err := f.client().Artifact(ctx, args[1])
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if *out == "-" {
		_, err := io.Copy(env.Stdout, a.Body)
		return err
	}
	name, n, err := save(a, *out)
	if err != nil {
		return fmt.Errorf("download artifact %s: %w", a.ID, err)
	}
	return env.saved(a, name, n, f.json)
}

func (env Env) saved(a *runlog.Artifact, name string, n int64, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprintf(env.Stdout, "%s · %s · %s\n", oneLine(name, 300), size(n), oneLine(a.MediaType, 60))
		return err
	}
	_, err := fmt.Fprintf(env.Stdout, "%s\n", event.Encode(struct {
		ArtifactID string `json:"artifact_id"`
		File       string `json:"file"`
		MediaType  string `json:"media_type"`
		Bytes      int64  `json:"bytes"`
	}{a.ID, name, a.MediaType, n}))
	return err
}

// save writes the artifact beside its place and moves it there when it is whole.
// A name that the server gave never replaces a file that is there.
func save(a *runlog.Artifact, name string) (string, int64, error) {
	chosen := name != ""
	if !chosen {
		if name = localName(a); exists(name) {
			return "", 0, fmt.Errorf("%s is there already: name another file with -o", name)
		}
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".runlog-*")
	if err != nil {
		return "", 0, err
	}
	defer os.Remove(tmp.Name())
	n, err := io.Copy(tmp, a.Body)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", 0, err
	}
	return name, n, place(tmp.Name(), name, chosen)
}

// place moves the file to its name. Linking refuses a name that somebody took
// in the meantime.
func place(tmp, name string, replace bool) error {
	if replace {
		return os.Rename(tmp, name)
	}
	return os.Link(tmp, name)
}

// localName is a file name in this directory, whatever the artifact is called.
func localName(a *runlog.Artifact) string {
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == ':' || isControl(r) || r == '\n' || r == '\t' {
			return '_'
		}
		return r
	}, a.Name)
	name = strings.TrimLeft(name, ".")
	for len(name) > 200 {
		_, name = name[0], strings.ToValidUTF8(name[1:], "")
	}
	if name == "" {
		return strings.NewReplacer("/", "_", "\\", "_", ".", "_").Replace(a.ID)
	}
	return name
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
