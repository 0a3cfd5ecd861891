package input

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/linnet-ml/linnet/transforms/store"
)

// links tells where the links in local paths lead.
type links struct {
	set       *Set
	real      map[string]string // resolveLinks of folders, for a while
	info      map[string]fs.FileInfo
	not, args []string // the set's folders without links
	outputs   []Output // and Records
}

func (s *Set) links() *links {
	l := &links{set: s, real: map[string]string{}, info: map[string]fs.FileInfo{}, outputs: slices.Concat(s.Outputs, s.Records)}
	for _, dir := range s.Not {
		if dir := resolveLinks(string(dir)); dir != "" {
			l.not = append(l.not, dir)
		}
	}
	for _, arg := range s.Args {
		if dir := resolveLinks(folder(string(arg))); dir != "" {
			l.args = append(l.args, dir)
		}
	}
	return l
}

// of is resolveLinks(dir), remembered for a while.
func (l *links) of(dir string) string {
	r, ok := l.real[dir]
	if !ok {
		r = resolveLinks(dir)
		remember(l.real, dir, r)
	}
	return r
}

// remember keeps something of a folder, of a thousand of them at most: there may be one for
// each document.
func remember[T any](m map[string]T, dir string, v T) {
	if len(m) == 1000 {
		clear(m)
	}
	m[dir] = v
}

// toNot reports whether a file, or what it is a link to, lies in a folder of Not.
func (l *links) toNot(file File) bool {
	return len(l.not) > 0 && !store.Remote(file.URI) &&
		(anyHolds(l.not, l.of(filepath.Dir(file.URI))) || file.Link && anyHolds(l.not, resolveLinks(file.URI)))
}

// amongInputs is the first output of a file that would lie outside of the output
// folder and in a folder of the inputs, by a link or a mount below --output, or "".
func (l *links) amongInputs(file File) string {
	if len(l.outputs) == 0 || len(l.set.Not) == 0 || store.Remote(file.URI) {
		return ""
	}
	output := string(l.set.Not[0])
	if l.of(output) == "" { // there are no links in it yet
		return ""
	}
	for _, o := range l.outputs {
		path := filepath.Join(output, filepath.FromSlash(o.Of(file.Name)))
		dir := filepath.Dir(path)
		for under(dir, output) && l.of(dir) == "" { // it will be made
			dir = filepath.Dir(dir)
		}
		lies := l.of(dir)
		switch {
		case !under(dir, output):
		case !under(lies, l.of(output)) && (anyHolds(l.args, lies) || lies == l.of(filepath.Dir(file.URI))):
			return path
		case l.mounted(dir, output, filepath.Dir(file.URI)):
			return path
		}
	}
	return ""
}

// mounted reports whether dir, or a folder between it and output, is by another mount the
// folder from, or one between that and the deepest that all inputs share.
func (l *links) mounted(dir, output, from string) bool {
	base := string(l.set.Base)
	for at := dir; at != output && under(at, output); at = filepath.Dir(at) {
		for in := from; under(in, base); in = filepath.Dir(in) {
			if a, b := l.stat(at), l.stat(in); a != nil && b != nil && store.Same(a, b) {
				return true
			}
			if in == filepath.Dir(in) {
				break
			}
		}
	}
	return false
}

// stat is os.Stat of a folder, remembered for a while; nil where that fails.
func (l *links) stat(dir string) fs.FileInfo {
	info, ok := l.info[dir]
	if !ok {
		info, _ = os.Stat(dir)
		remember(l.info, dir, info)
	}
	return info
}

// anyHolds reports whether dir is one of the folders or lies below one.
func anyHolds(folders []string, dir string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return under(dir, f) })
}
