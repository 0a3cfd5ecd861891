package input

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/linnet-ml/linnet/transforms/store"
)

// Passed says, a line for each reason, what the last Walk passed over for its name
// though it may be meant: annotations such as "X.txt (1).ann", as a browser calls a
// second export, files such as X.TXT and X.txt.gz, PDFs whose text is not beside them,
// and hidden files.
func (s *Set) Passed() (lines []string) {
	var ann, pdf leftover
	for _, uri := range s.left.ann {
		ann.add(uri)
	}
	for _, uri := range s.left.pdf {
		pdf.add(uri)
	}
	for _, l := range []struct {
		leftover
		one, many string
	}{
		{ann, "ends in .ann and not in .txt.ann: not read in a folder; name it by --input, or rename it",
			"end in .ann and not in .txt.ann: not read in a folder; name them by --input, or rename them"},
		{s.left.unlike, "does not end in .txt or .txt.ann, in lower case: not read in a folder; rename or unpack it",
			"do not end in .txt or .txt.ann, in lower case: not read in a folder; rename or unpack them"},
		{pdf, "is a PDF without its text, a .txt of that name, beside it: not read; make it with: pdftotext -layout",
			"are PDFs without their text, a .txt of that name, beside them: not read; make it with: pdftotext -layout"},
		{s.left.hidden, "is hidden, by a dot at the beginning of its name or of its folder's: not read; name it by --input to read it",
			"are hidden, by a dot at the beginning of their names or of their folders': not read; name them by --input to read them"},
	} {
		switch {
		case l.count == 1:
			lines = append(lines, quoted(l.first)+" "+l.one)
		case l.count > 1:
			lines = append(lines, fmt.Sprintf("%d files such as %s %s", l.count, quoted(l.first), l.many))
		}
	}
	return lines
}

// quoted is a path between quotation marks, on one line; a backslash stays one, as it is
// what Windows has between folders.
func quoted(path string) string { return strings.ReplaceAll(strconv.Quote(path), `\\`, `\`) }

// leftovers are what a Walk did not take.
type leftovers struct {
	ann    []string // with Annotated, *.ann of folders
	pdf    []string // without Annotated, PDFs of folders, in the end those whose text is not taken
	unlike leftover // files of folders that are called nearly as documents are
	hidden leftover // files, and folders that cannot be read
}

func (l leftovers) and(m leftovers) leftovers {
	return leftovers{append(l.ann, m.ann...), append(l.pdf, m.pdf...), l.unlike.and(m.unlike), l.hidden.and(m.hidden)}
}

type leftover struct {
	count int
	first string
}

func (l *leftover) add(uri string) {
	if l.count++; l.count == 1 {
		l.first = uri
	}
}

func (l leftover) and(m leftover) leftover {
	return leftover{l.count + m.count, cmp.Or(l.first, m.first)}
}

// unlike reports whether a file would be Text but for its letters' case, or for being
// packed.
func unlike(name string) bool {
	name = strings.ToLower(name)
	for _, packed := range []string{".gz", ".bz2", ".xz", ".zst", ".zip"} {
		name = strings.TrimSuffix(name, packed)
	}
	return Text(name)
}

// counterpart is X.txt.ann of X.txt, and X.txt of X.txt.ann.
func counterpart(uri string) string {
	if stem, annotated := strings.CutSuffix(uri, ".ann"); annotated {
		return stem
	}
	return uri + ".ann"
}

// noticeAbove is notice for a file that a folder has or a pattern with ** came upon, and
// for a local run's manifest in the folders above that, which the pattern need not match
// and which may have come since their names were read: it comes before all outputs.
func (s *Set) noticeAbove(arg, head, file string, looked map[string]bool) {
	s.notice(arg, head, file)
	if store.Remote(arg) {
		return
	}
	for dir := filepath.Dir(file); under(dir, head) && !looked[dir]; dir = filepath.Dir(dir) {
		remember(looked, dir, true)
		manifest := filepath.Join(dir, "_manifest.jsonl")
		if _, err := os.Stat(manifest); err == nil {
			s.notice(arg, head, manifest)
		}
	}
}

// notice keeps in mind that a file below head shows its folder, arg or one below it, to be
// the output of a run.
func (s *Set) notice(arg, head, file string) {
	head = strings.TrimRight(filepath.ToSlash(head), "/") // which may lie in a folder that is called _done
	file = strings.TrimPrefix(filepath.ToSlash(file), head)
	dir, record, ok := strings.Cut(file, "/_done/")
	if !ok || !strings.HasSuffix(record, ".json") {
		if dir, ok = strings.CutSuffix(file, "/_manifest.jsonl"); !ok {
			return
		}
	}
	dir = head + dir
	if !store.Remote(arg) {
		dir = filepath.FromSlash(dir)
	}
	if dir == s.output || s.earlier[dir] || s.leftOut(dir) {
		return
	}
	if slices.ContainsFunc(s.Args, func(arg []byte) bool {
		return dir == strings.TrimRight(string(arg), "/") || pattern(string(arg)) && dir == store.Head(string(arg))
	}) {
		s.output = dir
		return
	}
	if s.earlier == nil {
		s.earlier = map[string]bool{}
	}
	s.earlier[dir] = true
}

// Earlier reports whether a file is the output of a run that the Walk which passes it on
// has seen so far, and LeaveOut will tell of.
func (s *Set) Earlier(uri string) bool {
	for dir := range s.earlier {
		if under(uri, dir) {
			return true
		}
	}
	return false
}

// LeaveOut adds the folders below arguments in which the last Walk saw an
// earlier run's output to Not, and says which they are in one line, "" where
// there were none. What such a folder holds is read only where it is named.
// The Walk has to be done again, then.
func (s *Set) LeaveOut() string {
	links := s.links()
	maps.DeleteFunc(s.earlier, func(dir string, _ bool) bool { return !store.Remote(dir) && anyHolds(links.not, resolveLinks(dir)) }) // not read anyway
	dirs := slices.Sorted(maps.Keys(s.earlier))
	s.earlier = nil
	if len(dirs) == 0 {
		return ""
	}
	for _, dir := range dirs {
		s.Not = append(s.Not, []byte(dir))
	}
	more := ""
	if len(dirs) > 1 {
		more = " and " + english.Plural(len(dirs)-1, "more folder", "")
	}
	return fmt.Sprintf("%s%s below --input: output of an earlier run, not read; name it by --input to read it", quoted(dirs[0]), more)
}

// Predicted says in one line which argument is the output of an earlier run, as the
// last Walk saw, or lies in one that has a record of it on disk; "" where none does.
// There, who looks for annotation finds what a model said.
func (s *Set) Predicted() string {
	dir := s.output
	for _, arg := range s.Args {
		if dir == "" && !store.Remote(string(arg)) {
			dir = outputOf(string(arg))
		}
	}
	if dir == "" {
		return ""
	}
	return quoted(dir) + " is the output of an earlier run: what nobody has corrected there are a model's labels, not annotation"
}

// outputOf is the folder of a run that has records of what a local argument
// names, there or in its brat folder, or "".
func outputOf(arg string) string {
	if pattern(arg) {
		arg = store.Head(arg)
	}
	for dir := arg; ; dir = filepath.Dir(dir) {
		name := strings.TrimPrefix(arg, dir)
		names := []string{name, strings.TrimSuffix(name, ".ann") + ".json"}
		if brat := filepath.Join(dir, "brat"); under(arg, brat) { // whose X.ann is of X.txt
			name = strings.TrimPrefix(arg, brat)
			stem := strings.TrimSuffix(name, ".ann")
			names = append(names, name, stem+".json", stem+".txt.json")
		}
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(dir, "_done", name)); err == nil {
				return dir
			}
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}
