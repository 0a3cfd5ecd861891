package input

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestAny compares what a Set finds in any tree, with links in it, with what the README
// says of folders and patterns, read off every path there is.
func TestAny(t *testing.T) {
	if filepath.Separator != '/' {
		t.Skip("patterns have no escape where a backslash divides folders")
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(top, "")
		if err != nil {
			t.Fatal(err)
		}
		folders := anyTree(t, dir)
		out := rapid.SampledFrom(append([]string{""}, folders...)).Draw(t, "output")
		if out != "" {
			out = filepath.Join(dir, out)
		}
		annotated := rapid.Bool().Draw(t, "annotated")
		var args []string
		base, patterns := "", false
		want, perhaps := map[string]bool{}, map[string]bool{} // by realPath
		for range rapid.IntRange(1, 3).Draw(t, "args") {
			from := filepath.Join(dir, rapid.SampledFrom(folders).Draw(t, "from"))
			below, head, means := "", "", folderMeans
			if rapid.Bool().Draw(t, "pattern") {
				below, head, means = anyPattern(t)
				patterns = true
			}
			args = append(args, from+"/"+below)
			if head = filepath.Join(from, head); base == "" {
				base = head
			}
			for !under(head, base) {
				base = filepath.Dir(base)
			}
			eachPath(from, "", 0, func(rel string) {
				switch file := realPath(filepath.Join(from, rel)); {
				case !means.MatchString(rel):
				case out != "" && under(filepath.Join(from, rel), out):
					perhaps[file] = true // where it is not met there first
				default:
					want[file] = true
				}
			})
		}
		set, err := New(args, out, annotated)
		if err != nil {
			if out == "" {
				t.Fatal(err)
			}
			return // an argument lies there
		}
		if out != "" {
			not := resolveLinks(out)
			for file := range want {
				if under(file, not) || under(resolveLinks(file), not) {
					delete(want, file)
				}
			}
		}
		worse := map[string]bool{} // of a text and its annotation
		for file := range want {
			if text, ok := strings.CutSuffix(file, ".ann"); ok && want[text] {
				if annotated {
					file = text
				}
				worse[file] = true
			}
		}
		got := map[string]bool{}
		err = set.WalkOn(t.Context(), func(f File) error {
			file := realPath(f.URI)
			got[file] = true
			switch name, _ := filepath.Rel(base, f.URI); {
			case f.Err != nil: // of a link to nothing
			case !want[file]:
				t.Errorf("%q: %s is read", args, f.URI)
			case worse[file] && !patterns: // one of which may match that alone
				t.Errorf("%q: %s is read, not what is beside it", args, f.URI)
			case f.Name != strings.TrimSuffix(name, ".ann"):
				t.Errorf("%q: %s is called %q below %s", args, f.URI, f.Name, base)
			}
			return nil
		}, func(err error) { t.Errorf("%q: %v", args, err) })
		if err != nil {
			t.Fatal(err)
		}
		for file := range want {
			if !got[file] && !perhaps[file] && !worse[file] {
				t.Errorf("%q: %s is not read", args, file)
			}
		}
	})
}

// realPath is a file by the name of its folder without links.
func realPath(file string) string {
	return filepath.Join(resolveLinks(filepath.Dir(file)), filepath.Base(file))
}

// anyTree makes files, folders and links in dir and returns the paths of its folders, by
// links too.
func anyTree(t *rapid.T, dir string) (folders []string) {
	folders = []string{""}
	for range rapid.IntRange(0, 5).Draw(t, "folders") {
		name := rapid.SampledFrom([]string{"s", "t", "u", ".h", "o,p", "[s]", "u*"}).Draw(t, "folder")
		folder := path.Join(rapid.SampledFrom(folders).Draw(t, "in"), name)
		if os.Mkdir(filepath.Join(dir, folder), 0o777) == nil {
			folders = append(folders, folder)
		}
	}
	for range rapid.IntRange(1, 8).Draw(t, "files") {
		name := rapid.SampledFrom([]string{"a.txt", "a.txt.ann", "b.txt", "b.md", "a.TXT", ".a.txt", "s.txt", "é.txt"}).Draw(t, "file")
		file := filepath.Join(dir, rapid.SampledFrom(folders).Draw(t, "in"), name)
		if err := os.WriteFile(file, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "links") {
		name := rapid.SampledFrom([]string{"s", "t", "l", ".l", "l.txt"}).Draw(t, "link")
		to := path.Join(dir, rapid.SampledFrom(folders).Draw(t, "to"), rapid.SampledFrom([]string{"", "", "a.txt", "none"}).Draw(t, "what"))
		link := path.Join(rapid.SampledFrom(folders).Draw(t, "in"), name)
		if os.Symlink(to, filepath.Join(dir, link)) != nil {
			continue // there is something of that name
		}
		if st, err := os.Stat(filepath.Join(dir, link)); err == nil && st.IsDir() {
			folders = append(folders, link)
		}
	}
	return folders
}

// What names stand for: a dot at their beginning has to be spelled.
var (
	folderNames = map[string]string{"**": `([^/.][^/]*/)*`, "*": `[^/.][^/]*/`, "?": `[^/.]/`, "[s-t]": `[st]/`, "[!s]": `[^/.s]/`, "s*": `s[^/]*/`, ".*": `\.[^/]*/`, "l": `l/`, `\s`: `s/`}
	fileNames   = map[string]string{"**": `([^/.][^/]*/)*[^/.][^/]*`, "*": `[^/.][^/]*`, "*.txt": `[^/.][^/]*\.txt`, "a.*": `a\.[^/]*`, "?.txt": `[^/.]\.txt`}
	folderMeans = regexp.MustCompile(`^([^/.][^/]*/)*[^/.][^/]*\.txt(\.ann)?$`)
)

// anyPattern returns a pattern, the path before its first wildcard, and what it means.
func anyPattern(t *rapid.T) (pattern, head string, means *regexp.Regexp) {
	text, plain := "", true
	for range rapid.IntRange(0, 3).Draw(t, "names") {
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(folderNames))).Draw(t, "name")
		if plain = plain && !strings.ContainsAny(name, "*?["); plain {
			head = path.Join(head, strings.TrimPrefix(name, `\`))
		}
		pattern += name + "/"
		text += folderNames[name]
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(fileNames))).Draw(t, "last")
	return pattern + name, head, regexp.MustCompile("^" + text + fileNames[name] + "$")
}

// eachPath calls f with every path of a file below head, by links too.
func eachPath(head, rel string, depth int, f func(rel string)) {
	entries, _ := os.ReadDir(filepath.Join(head, rel))
	for _, e := range entries {
		at := path.Join(rel, e.Name())
		switch st, err := os.Stat(filepath.Join(head, at)); {
		case err != nil:
		case !st.IsDir():
			f(at)
		case depth < 6: // patterns have fewer folders, and what ** stands for has each once
			eachPath(head, at, depth+1, f)
		}
	}
}
