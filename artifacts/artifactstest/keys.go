package artifactstest

import (
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
)

func testBadKeys(t *testing.T, e env) {
	bad := []string{
		"", ".", "..", "/", "a/b", "/a", "a/", "x//y", "../a", "a/../b", `a\b`, "a\x00b", "a\nb", "a\x7fb", "a b", " ", "a%2fb", "a?b", "a#b", "a*",
		`"`, "'", "<a>", "a|b", "a;b", "\xff", "a\xc3", "a\u2028b", "a\u202eb", "a\u200bb", "\ufeffa", strings.Repeat("a", 201), strings.Repeat("é", 101),
	}
	for _, s := range bad {
		for _, k := range []artifacts.Key{{Tenant: "acme", ID: s}, {Tenant: s, ID: "art_1"}} {
			_, err := e.Create(t.Context(), k, plain)
			e.wantIs("create", err, artifacts.ErrBadKey)
			_, err = e.Open(t.Context(), k)
			e.wantIs("open", err, artifacts.ErrBadKey)
			_, err = e.Stat(t.Context(), k)
			e.wantIs("stat", err, artifacts.ErrBadKey)
			e.wantIs("delete", e.Delete(t.Context(), k), artifacts.ErrBadKey)
			if _, err = e.PresignGet(t.Context(), k, time.Minute); err == nil {
				t.Errorf("presign %q succeeded", s)
			}
			if t.Failed() {
				t.Fatalf("with tenant %q and id %q", k.Tenant, k.ID)
			}
		}
	}
}

// testOddKeys writes under keys that stores, proxies or signatures confuse
// with each other, and reads each one's own bytes back.
func testOddKeys(t *testing.T, e env) {
	odd := []string{
		"a", "A", "a.", ".a", "a..b", "...", "-", "--", "~", "@", "+", "a+b", "a=b", "a,b", "a:b", "=", "blobs", "tmp", "seals", "probe",
		"ключ", "日本語", "नमस्ते", "é", "e\u0301", "ß", "ss", "İ", "i", "٣", strings.Repeat("x", 200), strings.Repeat("é", 100), "art_01j-2_3",
	}
	for i, s := range odd {
		e.store(artifacts.Key{Tenant: "acme", ID: s}, plain, []byte("id "+s))
		e.store(artifacts.Key{Tenant: s, ID: "of-tenant"}, plain, Content(uint64(i), 40))
	}
	for i, s := range odd {
		e.wantContent(artifacts.Key{Tenant: "acme", ID: s}, []byte("id "+s))
		e.wantContent(artifacts.Key{Tenant: s, ID: "of-tenant"}, Content(uint64(i), 40))
	}
	for _, s := range odd {
		if err := e.Delete(t.Context(), artifacts.Key{Tenant: "acme", ID: s}); err != nil {
			t.Errorf("delete %q: %v", s, err)
		}
		e.wantAbsent(artifacts.Key{Tenant: "acme", ID: s})
	}
}

func testTenants(t *testing.T, e env) {
	a, b := artifacts.Key{Tenant: "a", ID: "art_1"}, artifacts.Key{Tenant: "b", ID: "art_1"}
	e.store(a, plain, []byte("of a"))
	e.wantAbsent(b)
	e.store(b, plain, []byte("of b"))
	e.wantContent(a, []byte("of a"))
	if err := e.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	e.wantAbsent(a)
	e.wantContent(b, []byte("of b"))
}

func testMeta(t *testing.T, e env) {
	for i, m := range []artifacts.Meta{
		{Name: "", MediaType: "text/plain"},
		{Name: "отчёт за март.pdf", MediaType: "application/pdf"},
		{Name: "报告 – 最终版.docx", MediaType: "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
		{Name: "תוצאה.txt", MediaType: "text/plain; charset=utf-8"},
		{Name: "👩‍👩‍👧‍👦.png", MediaType: "image/png"},
		{Name: `a "quoted" \ name; filename=b.html`, MediaType: `text/x; a="\"q\""`},
		{Name: "../../etc/passwd", MediaType: "x/y"},
		{Name: strings.Repeat(`"`, 255), MediaType: "a/" + strings.Repeat("b", 125)},
		{Name: strings.Repeat("\u2028", 85), MediaType: "a/b"},
		{Name: "<script>&amp;%41", MediaType: "text/html"},
	} {
		for _, n := range []int{3, partBytes + 3} {
			if n > 3 && i%3 != 0 {
				continue
			}
			k := artifacts.Key{Tenant: strings.Repeat("t", 200), ID: strings.Repeat("i", 197) + string(rune('0'+i)) + string(rune('a'+n%7))}
			e.store(k, m, Content(1, n))
			if got, err := e.Stat(t.Context(), k); err != nil || got.Meta != m {
				t.Errorf("meta: got %+v, %v, want %+v", got.Meta, err, m)
			}
		}
	}
	if info := e.store(key("untyped"), artifacts.Meta{Name: "x"}, nil); info.MediaType != "application/octet-stream" {
		t.Errorf("media type of an untyped artifact: got %q", info.MediaType)
	}
}

func testBadMeta(t *testing.T, e env) {
	for _, m := range []artifacts.Meta{
		{Name: strings.Repeat("a", 256)}, {Name: "a\xff"}, {Name: "a\r\nX-Evil: 1"}, {Name: "a\x00"},
		{MediaType: "text"}, {MediaType: "text/plain\r\nX-Evil: 1"}, {MediaType: "a/" + strings.Repeat("b", 126)}, {MediaType: "tëxt/plain"}, {MediaType: "a/b; c"},
	} {
		if _, err := e.Create(t.Context(), key("a"), m); err == nil {
			t.Errorf("create with %+q succeeded", m)
		} else {
			e.wantIs("create", err, artifacts.ErrBadMeta)
		}
	}
}
