package redact

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// ErrUnknown is wrapped by the error of Resolve for a secret that is not set.
var ErrUnknown = errors.New("unknown secret")

// Lookup finds the value of a secret. Its error says how to set the secret,
// wraps ErrUnknown if it is not set, and never holds a value.
type Lookup func(name string) (string, error)

// Secrets puts secret values in the place of ${secret:NAME}, and sees to it
// that its Redactors hide each value before anybody else has it. It is safe
// for concurrent use.
type Secrets struct {
	lookup Lookup

	mu        sync.Mutex
	values    map[string]bool
	redactors []*Redactor
}

// NewSecrets builds a resolver; without a lookup it reads the Environment.
func NewSecrets(lookup Lookup) *Secrets {
	if lookup == nil {
		lookup = Environment
	}
	return &Secrets{lookup: lookup, values: map[string]bool{}}
}

// Redactor builds a Redactor that also hides every value resolved so far, and
// learns those resolved later. It lives as long as s does.
func (s *Secrets) Redactor(o Options) *Redactor {
	r := New(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Learn(slices.Collect(maps.Keys(s.values))...)
	s.redactors = append(s.redactors, r)
	return r
}

const (
	opening = "${secret:"

	// maxValues bounds what a worker remembers while its secrets rotate.
	maxValues = 10_000
)

// Resolve returns text with every ${secret:NAME} replaced by the value of that
// secret; values are not searched for placeholders in turn. NAME is made of
// letters, digits, '_', '-' and '.'. If any secret is unknown or empty the
// error names all such, and the text returned is empty.
func (s *Secrets) Resolve(text string) (string, error) {
	var out strings.Builder
	var errs []error
	var values []string
	for {
		before, rest, found := strings.Cut(text, opening)
		out.WriteString(before)
		if !found {
			break
		}
		value, after, err := s.first(rest)
		if err != nil {
			errs = append(errs, err)
		}
		values = append(values, value)
		out.WriteString(value)
		text = after
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	if err := s.remember(values); err != nil {
		return "", err
	}
	return out.String(), nil
}

// first resolves the placeholder whose name text begins with, and returns its
// value and the text after it.
func (s *Secrets) first(text string) (value, after string, err error) {
	name, after, closed := strings.Cut(text, "}")
	if !closed {
		return "", "", fmt.Errorf("placeholder %s… has no closing brace; write %sNAME}", opening, opening)
	}
	if !validName(name) {
		return "", after, fmt.Errorf("placeholder %s%s} has no valid name; use letters, digits, '_', '-' and '.'", opening, name)
	}
	value, err = s.lookup(name)
	switch {
	case err != nil:
		err = fmt.Errorf("secret %s: %w", name, err)
	case value == "":
		err = fmt.Errorf("secret %s is empty; give it a value", name)
	}
	return value, after, err
}

func validName(name string) bool {
	for i := range len(name) {
		if !keyClass[name[i]] {
			return false
		}
	}
	return name != ""
}

// remember teaches new values to the Redactors.
func (s *Secrets) remember(values []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh []string
	for _, v := range values {
		if !s.values[v] {
			fresh = append(fresh, v)
		}
	}
	if len(s.values)+len(fresh) > maxValues {
		return fmt.Errorf("more than %d different secret values since the start; restart the worker, and look for a secret that changes all the time", maxValues)
	}
	for _, v := range fresh {
		s.values[v] = true
	}
	for _, r := range s.redactors {
		r.Learn(fresh...)
	}
	return nil
}

// maxFile bounds a file with a secret, in bytes.
const maxFile = 64 << 10

// Environment looks a secret up in the environment variable NAME, or else in
// the file that NAME_FILE names, whose last line end is dropped.
func Environment(name string) (string, error) {
	if v := os.Getenv(name); v != "" {
		return v, nil
	}
	path := os.Getenv(name + "_FILE")
	if path == "" {
		return "", fmt.Errorf("%w: set the environment variable %s, or set %s_FILE to the path of a file that holds the value", ErrUnknown, name, name)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the file named by %s_FILE: %w", name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("read the file named by %s_FILE: %w", name, err)
	}
	if len(b) > maxFile {
		return "", fmt.Errorf("the file named by %s_FILE is larger than %d bytes; name a file that holds the value alone", name, maxFile)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}
