package store

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPattern(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string
	}{
		{"a.txt", []string{"a.txt"}, []string{"a.txt2", "ba.txt", "a/txt", ""}},
		{"*.txt", []string{"a.txt", ".txt", "ä b.txt", "\xff.txt"}, []string{"a/b.txt", "a.tx"}},
		{"?.txt", []string{"a.txt", "ä.txt", "\xff.txt", "\n.txt"}, []string{".txt", "ab.txt", "/.txt"}},
		{"a[bc]d", []string{"abd", "acd"}, []string{"ad", "aed", "abcd"}},
		{"a[b-d]", []string{"ab", "ac", "ad"}, []string{"aa", "ae", "a-"}},
		{"a[!b-d]", []string{"aa", "ae", "aé", "a\xff"}, []string{"ab", "ad", "a/", "a"}},
		{"a[^b]", []string{"aa"}, []string{"ab"}},
		{"a[]b]", []string{"a]", "ab"}, []string{"a"}},
		{"a[b-]", []string{"ab", "a-"}, []string{"ac"}},
		{"a[1", []string{"a[1"}, []string{"a1"}},
		{"?\\", []string{"a\\"}, []string{"a", "\\"}}, // nothing is escaped
		{"a[é]", []string{"aé"}, []string{"a\xc3", "ae"}},
		{"\xff*", []string{"\xff", "\xffa"}, []string{"\xfe", "ÿ", "\uFFFD"}},
		{"\uFFFD", []string{"\uFFFD"}, []string{"\xff"}},
		{"**", []string{"", "a", "a/b"}, nil},
		{"**/*.txt", []string{"a.txt", "a/b.txt", "a/b/c.txt"}, []string{"a.tx", "txt"}},
		{"a/**/b", []string{"a/b", "a/x/b", "a/x/y/b"}, []string{"ab", "a/xb", "a/x/yb", "xa/b"}},
		{"a/**", []string{"a/b", "a/b/c", "a/"}, []string{"a", "b/a"}},
		{"a**b", []string{"ab", "a/b", "ax/yb"}, []string{"a/b/"}},
		{"x/***/y", []string{"x/y", "x/z/y"}, []string{"xy"}},
		{`a\*b`, []string{"a*b"}, []string{"axb", `a\b`}},
		{`a\[1]`, []string{"a[1]"}, []string{"a1"}},
		{"*,(*", []string{"a,(b"}, []string{"a,b"}},
	}
	for _, test := range tests {
		p := parsePattern(test.pattern)
		for _, s := range test.yes {
			if !p.match(s) {
				t.Errorf("%q does not match %q", test.pattern, s)
			}
		}
		for _, s := range test.no {
			if p.match(s) {
				t.Errorf("%q matches %q", test.pattern, s)
			}
		}
	}
}

// TestPatternHidden: a dot at the beginning of a name has to be spelled.
func TestPatternHidden(t *testing.T) {
	for _, test := range []struct {
		pattern     string
		seen, unset []string
	}{
		{"*.txt", []string{"a.txt", "a.b.txt"}, []string{".txt", ".a.txt"}},
		{"?a", nil, []string{".a"}},
		{"[.x]a", []string{"xa"}, []string{".a"}},
		{".*", []string{".a"}, nil},
		{"a/**", []string{"a/b", "a/b/c."}, []string{"a/.b", "a/b/.c", "a/.b/c"}},
		{"**/.git/*.txt", []string{".git/a.txt", "b/.git/a.txt"}, []string{".x/.git/a.txt", ".git/.a.txt"}},
		{"a/**/b", []string{"a/b", "a/c/b"}, []string{"a/.c/b"}},
		{`a/\.b`, []string{"a/.b"}, nil},
	} {
		p := parsePattern(test.pattern)
		for _, path := range test.seen {
			if !p.match(path) || p.hidden(path) {
				t.Errorf("%q: %q matches %v, is hidden %v", test.pattern, path, p.match(path), p.hidden(path))
			}
		}
		for _, path := range test.unset {
			if !p.match(path) || !p.hidden(path) {
				t.Errorf("%q: %q matches %v, is hidden %v", test.pattern, path, p.match(path), p.hidden(path))
			}
		}
	}
}

// TestPatternEscaped: any name, its special characters escaped, is a pattern
// that matches that name, and no other.
func TestPatternEscaped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := string(rapid.SliceOf(rapid.SampledFrom([]byte("ab*?[]\\!-/\xff\xc3\xa9"))).Draw(t, "name"))
		other := string(rapid.SliceOf(rapid.SampledFrom([]byte("ab*?[]\\!-/\xff\xc3\xa9"))).Draw(t, "other"))
		escaped := strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`).Replace(name)
		p := parsePattern(escaped)
		if !p.match(name) || p.match(other) != (name == other) {
			t.Fatalf("%q: matches %q %v, %q %v", escaped, name, p.match(name), other, p.match(other))
		}
		if got, ok := p.literalText(); !ok || got != name {
			t.Fatalf("literalText of %q: %q, %v", escaped, got, ok)
		}
	})
}

// TestPatternTakesNoTime: a backtracking matcher would take years.
func TestPatternTakesNoTime(t *testing.T) {
	begin := time.Now()
	if parsePattern(strings.Repeat("**a*", 30) + "b").match(strings.Repeat("a", 2000)) {
		t.Error("matches")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzPattern(f *testing.F) {
	f.Add("a/**/*.[tx]*", "a/b.txt")
	f.Fuzz(func(t *testing.T, pattern, name string) { parsePattern(pattern).match(name) })
}
