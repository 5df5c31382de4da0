package redact

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestResolve(t *testing.T) {
	t.Setenv("RUNLOG_TEST_KEY", "value-of-key")
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("value of file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUNLOG_TEST_OTHER_FILE", file)
	s := NewSecrets(nil)
	early := s.Redactor(Options{})
	stream := early.Stream()
	stream.Write("x ")
	got, err := s.Resolve("a ${secret:RUNLOG_TEST_KEY}, ${secret:RUNLOG_TEST_OTHER} ${HOME} $")
	if want := "a value-of-key, value of file ${HOME} $"; err != nil || got != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
	for name, r := range map[string]*Redactor{"early": early, "late": s.Redactor(Options{})} {
		if got := r.String(got); got != "a [redacted], [redacted] ${HOME} $" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := stream.Write("value-of-") + stream.Write("key!"); got != "[redacted]!" {
		t.Errorf("open stream: %q", got)
	}
}

func TestResolveRotates(t *testing.T) {
	n := 0
	s := NewSecrets(func(string) (string, error) { n++; return fmt.Sprintf("rotated-value-%d", n), nil })
	r := s.Redactor(Options{})
	for range 3 {
		if _, err := s.Resolve("${secret:X}"); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.String("rotated-value-1 rotated-value-2 rotated-value-3 rotated-value-4"); got != "[redacted] [redacted] [redacted] rotated-value-4" {
		t.Errorf("got %q", got)
	}
}

func TestResolveErrors(t *testing.T) {
	t.Setenv("RUNLOG_TEST_SET", "some-known-value")
	t.Setenv("RUNLOG_TEST_LOST_FILE", filepath.Join(t.TempDir(), "none"))
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUNLOG_TEST_BIG_FILE", big)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUNLOG_TEST_EMPTY_FILE", empty)
	s := NewSecrets(nil)
	for in, want := range map[string][]string{
		"${secret:RUNLOG_TEST_SET} ${secret:RUNLOG_TEST_NO}":  {"secret RUNLOG_TEST_NO", "set the environment variable RUNLOG_TEST_NO", "RUNLOG_TEST_NO_FILE"},
		"${secret:RUNLOG_TEST_NO1} ${secret:RUNLOG_TEST_NO2}": {"RUNLOG_TEST_NO1", "RUNLOG_TEST_NO2"},
		"${secret:RUNLOG_TEST_LOST}":                          {"RUNLOG_TEST_LOST_FILE", "none"},
		"${secret:RUNLOG_TEST_BIG}":                           {"RUNLOG_TEST_BIG_FILE", "larger"},
		"${secret:RUNLOG_TEST_EMPTY}":                         {"RUNLOG_TEST_EMPTY", "empty"},
		"${secret:}":                                          {"no valid name"},
		"${secret:a b}":                                       {"no valid name"},
		"${secret:RUNLOG":                                     {"no closing brace"},
	} {
		got, err := s.Resolve(in)
		if err == nil || got != "" {
			t.Errorf("Resolve(%s) = %q, %v", in, got, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("Resolve(%s): %q does not say %q", in, err, w)
			}
		}
		if strings.Contains(err.Error(), "some-known-value") {
			t.Errorf("a value is in %q", err)
		}
	}
	if _, err := s.Resolve("${secret:RUNLOG_TEST_NO}"); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v is not ErrUnknown", err)
	}
}

func TestResolveConcurrently(t *testing.T) {
	s := NewSecrets(func(name string) (string, error) { return "value-of-" + name, nil })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := s.Redactor(Options{})
			v, err := s.Resolve(fmt.Sprintf("${secret:N%d}", i))
			if err != nil || r.String(v) != Mark {
				t.Errorf("%q, %v: %q", v, err, r.String(v))
			}
		}()
	}
	wg.Wait()
}
