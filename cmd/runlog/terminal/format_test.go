package terminal

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	runlog "github.com/runlog-dev/runlog/clients/go"
)

func TestSizeAndLasted(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 1234: "1.2 kB", 999_949: "999.9 kB", 999_999: "1.0 MB", 3_000_000: "3.0 MB", 5e9: "5.0 GB", 7e12: "7.0 TB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0ms", 12_300 * time.Microsecond: "12ms", 3400 * time.Millisecond: "3.4s", 123 * time.Second: "2m03s", 62 * time.Minute: "1h02m"} {
		if got := lasted(d); got != want {
			t.Errorf("lasted(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestLocalNames(t *testing.T) {
	for name, want := range map[string]string{
		"note.md": "note.md", "../../etc/passwd": "_.._etc_passwd", ".bashrc": "bashrc", "..": "art_1", "": "art_1",
		"a\x1b[2J\nb": "a_[2J_b", `C:\x`: "C__x", "报告.pdf": "报告.pdf",
	} {
		if got := localName(&runlog.Artifact{ID: "art_1", Name: name}); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
	if got := localName(&runlog.Artifact{Name: strings.Repeat("报", 300) + ".pdf"}); len(got) > 200 || !utf8.ValidString(got) || !strings.HasSuffix(got, ".pdf") {
		t.Errorf("a long name became %q", got)
	}
}

// Whatever a model says, it does not reach the terminal as a control sequence.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b]0;title\x07b\r\nc\u009b2Jd\x7f")
	f.Fuzz(func(t *testing.T, in string) {
		for _, out := range []string{printable(in), oneLine(in, 20)} {
			for _, r := range out {
				if isControl(r) {
					t.Fatalf("%q holds %q, of %q", out, r, in)
				}
			}
		}
		if line := oneLine(in, 20); strings.ContainsAny(line, "\n\t") || utf8.RuneCountInString(line) > 20 {
			t.Fatalf("%q is no line of 20 characters, of %q", line, in)
		}
	})
}
