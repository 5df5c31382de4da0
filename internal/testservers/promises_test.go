package testservers

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A verdict is a test that only notes what was decided about it.
type verdict struct {
	testing.TB
	skipped, failed string
	logged          []string
}

func (v *verdict) Helper()      {}
func (v *verdict) Failed() bool { return v.failed != "" }
func (v *verdict) Skipf(format string, args ...any) {
	v.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (v *verdict) Errorf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
}
func (v *verdict) Logf(format string, args ...any) {
	v.logged = append(v.logged, fmt.Sprintf(format, args...))
}

// judge runs f as the goroutine of a test, which a verdict may end.
func judge(f func(v *verdict)) *verdict {
	v, done := &verdict{}, make(chan struct{})
	go func() {
		defer close(done)
		f(v)
	}()
	<-done
	return v
}

func TestMissingServiceSkipsExceptInCI(t *testing.T) {
	t.Setenv("CI", "")
	here := judge(func(v *verdict) { Tool(v, "no-such-program") })
	if here.failed != "" || !strings.Contains(here.skipped, "make tools") {
		t.Errorf("on a developer's machine: skipped %q, failed %q", here.skipped, here.failed)
	}
	t.Setenv("CI", "true")
	ci := judge(func(v *verdict) { Tool(v, "no-such-program") })
	if ci.skipped != "" || !strings.Contains(ci.failed, "make tools") {
		t.Errorf("in CI: skipped %q, failed %q", ci.skipped, ci.failed)
	}
}

func TestRaceInAProcessFailsTheTestAndShowsItsLog(t *testing.T) {
	var v verdict
	p, err := newProcess(&v, spec{name: "racy", path: "/bin/echo", args: []string{"WARNING: DATA RACE"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Start()
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	p.finish()
	if !strings.Contains(v.failed, "data race") || len(v.logged) != 1 || !strings.Contains(v.logged[0], "DATA RACE") {
		t.Errorf("failed with %q, logged %q", v.failed, v.logged)
	}
}

func TestProcessThatEndsIsNotWaitedForToBeReady(t *testing.T) {
	p, err := newProcess(t, spec{
		name: "short", path: "/bin/sh", args: []string{"-c", "echo no licence; exit 7"},
		ready: func() error { return fmt.Errorf("connection refused") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.finish)
	err = p.start()
	if err == nil {
		t.Fatal("a process that ended at once was taken for ready")
	}
	for _, want := range []string{"short", "exit status 7", "connection refused", "no licence"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}
