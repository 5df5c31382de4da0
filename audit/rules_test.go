package audit

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every rule is said in words, and some test breaks it.
func TestEveryRuleIsSaidAndBroken(t *testing.T) {
	source, err := os.ReadFile("rules.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, name := range []string{"doctored_test.go", "store_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	rules := regexp.MustCompile(`(?m)^\t(\w+) +Rule = "(.*)"$`).FindAllStringSubmatch(string(source), -1)
	if len(rules) != len(Promises) {
		t.Errorf("%d rules, %d promises", len(rules), len(Promises))
	}
	for _, r := range rules {
		if !slices.ContainsFunc(Promises, func(p Promise) bool { return string(p.Rule) == r[2] && p.Text != "" }) {
			t.Errorf("rule %s is not among the promises", r[2])
		}
		if !regexp.MustCompile(`\b` + r[1] + `\b`).MatchString(tests.String()) {
			t.Errorf("no test breaks rule %s", r[2])
		}
	}
}
