package store

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// pattern matches whole paths. It is a nondeterministic automaton over
// characters, so no pattern takes more than |pattern|·|path| steps.
type pattern []token

type token struct {
	kind tokenKind
	r    rune      // literal
	not  bool      // set
	set  [][2]rune // set: ranges
}

type tokenKind uint8

const (
	literal   tokenKind = iota
	anyChar             // ?: one character, no slash
	anyName             // *: any characters, no slash
	anyPath             // **: any characters
	anyFolder           // **/ at the beginning of a name: nothing, or anyPath and a slash (the two tokens that follow)
	charSet             // [a-z]: one character of a set, no slash
)

// escapes: \ separates folders on Windows.
const escapes = filepath.Separator == '/'

// hasMeta reports whether s has characters that are special in a pattern.
func hasMeta(s string) bool {
	return strings.ContainsAny(s, "*?[") || escapes && strings.ContainsRune(s, '\\')
}

// literalText returns what p matches when it has no special characters.
func (p pattern) literalText() (text string, ok bool) {
	var b []byte
	for _, t := range p {
		if t.kind != literal {
			return "", false
		}
		if t.r > utf8.MaxRune {
			b = append(b, byte(t.r-utf8.MaxRune-1))
		} else {
			b = utf8.AppendRune(b, t.r)
		}
	}
	return string(b), true
}

// Head is the folder where List begins to look for what matches a pattern.
func Head(pattern string) string {
	if !Remote(pattern) {
		base, _ := literalHead(filepath.ToSlash(pattern))
		return filepath.FromSlash(base)
	}
	p := parsePattern(pattern)
	head, _ := p[:p.literals()].literalText()
	if i := strings.LastIndexByte(head, '/'); i >= len("gs://") {
		return head[:i]
	}
	return head
}

// Plain is a local pattern that is nothing but the name of what exists, with
// characters escaped, as that name; ok is false for all else.
func Plain(pattern string) (name string, ok bool) {
	if Remote(pattern) || !hasMeta(pattern) {
		return "", false
	}
	if _, err := os.Lstat(pattern); err == nil {
		return "", false
	}
	base, rest := literalHead(filepath.ToSlash(pattern))
	text, ok := parsePattern(rest).literalText()
	if !ok {
		return "", false
	}
	name = filepath.Join(base, text)
	_, err := os.Lstat(name)
	return name, err == nil
}

// literals is the number of tokens before the first that is special.
func (p pattern) literals() int {
	if i := slices.IndexFunc(p, func(t token) bool { return t.kind != literal }); i >= 0 {
		return i
	}
	return len(p)
}

// parsePattern never fails: a [ without its ] is a plain character.
func parsePattern(s string) pattern {
	var p pattern
	chars := decode(s)
	for i := 0; i < len(chars); i++ {
		switch c := chars[i]; {
		case c == '\\' && escapes && i+1 < len(chars):
			i++
			p = append(p, token{kind: literal, r: chars[i]})
		case c == '?':
			p = append(p, token{kind: anyChar})
		case c == '*' && (i+1 == len(chars) || chars[i+1] != '*'):
			p = append(p, token{kind: anyName})
		case c == '*':
			first := i == 0 || chars[i-1] == '/'
			for i+1 < len(chars) && chars[i+1] == '*' {
				i++
			}
			if first && i+1 < len(chars) && chars[i+1] == '/' {
				p = append(p, token{kind: anyFolder})
			}
			p = append(p, token{kind: anyPath})
		case c == '[':
			set, end := parseSet(chars, i)
			if end < 0 {
				p = append(p, token{kind: literal, r: c})
				break
			}
			p = append(p, set)
			i = end
		default:
			p = append(p, token{kind: literal, r: c})
		}
	}
	return p
}

// parseSet reads the set that begins with the [ at i; end is the place of its
// ], or -1. A ] that comes first is a member.
func parseSet(chars []rune, i int) (set token, end int) {
	set.kind = charSet
	i++
	if i < len(chars) && (chars[i] == '!' || chars[i] == '^') {
		set.not = true
		i++
	}
	for first := i; i < len(chars) && (chars[i] != ']' || i == first); i++ {
		lo := chars[i]
		hi := lo
		if i+2 < len(chars) && chars[i+1] == '-' && chars[i+2] != ']' {
			hi = chars[i+2]
			i += 2
		}
		set.set = append(set.set, [2]rune{lo, hi})
	}
	if i >= len(chars) {
		return token{}, -1
	}
	return set, i
}

// crossesFolders reports whether p can match a slash.
func (p pattern) crossesFolders() bool {
	return slices.ContainsFunc(p, func(t token) bool { return t.kind == anyPath || t.kind == literal && t.r == '/' })
}

// decode splits s into characters; a byte that is no UTF-8 becomes one of its own
// beyond Unicode, so that it equals itself alone.
func decode(s string) []rune {
	chars := make([]rune, 0, len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			r = utf8.MaxRune + 1 + rune(s[i])
		}
		chars = append(chars, r)
		i += n
	}
	return chars
}

// states is the set of tokens that may come next; [len(pattern)] is the end.
type states []bool

// start is the state before the first character.
func (p pattern) start() states {
	s := make(states, len(p)+1)
	p.enter(s, 0)
	return s
}

// enter adds token i and those that can come next without a character.
func (p pattern) enter(s states, i int) {
	if s[i] {
		return
	}
	s[i] = true
	if i == len(p) {
		return
	}
	switch p[i].kind {
	case anyName, anyPath:
		p.enter(s, i+1)
	case anyFolder:
		p.enter(s, i+1)
		p.enter(s, i+3) // past anyPath and the slash
	}
}

// step returns the states after text, and whether there are any: whether
// something that begins so can match.
func (p pattern) step(s states, text string) (next states, alive bool) { return p.walk(s, text, false) }

// walk is step. With spelled, a dot at the beginning of a name is matched only by one
// at the beginning of a name in the pattern.
func (p pattern) walk(s states, text string, spelled bool) (next states, alive bool) {
	alive = true
	buffers := [2]states{make(states, len(p)+1), make(states, len(p)+1)}
	var last rune
	for n, c := range decode(text) {
		hidden := spelled && c == '.' && (n == 0 || last == '/')
		last = c
		next, alive = buffers[n%2], false
		clear(next)
		for i, on := range s[:len(p)] {
			if !on || hidden && !p.beginsName(i) {
				continue
			}
			switch t := &p[i]; {
			case t.kind == literal && c == t.r,
				t.kind == anyChar && c != '/',
				t.kind == charSet && c != '/' && t.has(c) != t.not:
				p.enter(next, i+1)
				alive = true
			case t.kind == anyName && c != '/', t.kind == anyPath:
				p.enter(next, i)
				alive = true
			}
		}
		s = next
		if !alive {
			break
		}
	}
	return s, alive
}

// beginsName reports whether token i is a character at the beginning of a name.
func (p pattern) beginsName(i int) bool {
	return p[i].kind == literal && (i == 0 || p[i-1].kind == literal && p[i-1].r == '/')
}

// hidden reports whether a path, which a folder that is listed has below it (p is nil) or
// which p came upon, has a name that begins with a dot and is not spelled so in p.
func (p pattern) hidden(path string) bool {
	if !strings.HasPrefix(path, ".") && !strings.Contains(path, "/.") {
		return false
	}
	if p == nil {
		return true
	}
	_, spelled := p.walk(p.start(), path, true)
	return !spelled
}

func (t *token) has(c rune) bool {
	return slices.ContainsFunc(t.set, func(r [2]rune) bool { return r[0] <= c && c <= r[1] })
}

func (p pattern) match(text string) bool {
	s, _ := p.step(p.start(), text)
	return s[len(p)]
}
