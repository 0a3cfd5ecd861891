// Package input says what --input means: files, folders and patterns become a
// stream of documents, each with the name that its outputs are called by.
//
// A folder stands for every *.txt and *.txt.ann below it, a pattern or a named
// file for any name; names that begin with a dot have to be spelled. What ends in
// .ann is annotated, all else is text. Nothing under the output folder is ever an
// input. Names are relative to the deepest folder that the arguments have in common,
// so they stay the same when files are added.
package input

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/linnet-ml/linnet/transforms/store"
)

// Errors of Walk to test for with errors.Is.
var (
	ErrNone  = errors.New("no document")            // an argument matches none
	ErrTwins = errors.New("two inputs, one output") // neither is the other's annotation, or both are a text's
)

// Set is what to read. Its paths are bytes because file names need not be
// UTF-8 and a Set travels as JSON.
type Set struct {
	Args [][]byte // absolute paths, gs:// addresses and patterns
	Base []byte   // the deepest folder common to Args
	Not  [][]byte // folders where nothing is read, whatever links lead there: the output folder, if any, first
	// Annotated takes X.txt.ann, or X.ann, where both X.txt and it are there;
	// otherwise X.txt is taken.
	Annotated bool
	// Outputs are what each document will have, by its name. Two documents with
	// one output are twins, such as X and X.txt in brat.
	Outputs []Output
	// Records are files that a run has for itself beside the Outputs of a document.
	Records []Output
	// Sample, where not 0, takes only as many documents, spread by a hash of
	// their names and so always the same ones.
	Sample int

	earlier map[string]bool // folders with an earlier run's output, seen by Walk
	output  string          // an argument that is such a folder itself
	left    leftovers       // of the last Walk
}

// File is one document of a Set.
type File struct {
	URI      string    // where to read it
	Name     string    // Set.Name(URI)
	Size     int64     // bytes, from the listing
	Modified time.Time // from the listing
	Access   [3]uint32 // from the listing
	Link     bool      // from the listing
	Err      error     // from the listing: why it cannot be read; it will have no output
}

// Output names a file of a document: Folder, a slash, the document's name less
// Trim at its end, and Suffix.
type Output struct{ Folder, Trim, Suffix string }

// Of is the path, below the output folder, for the document of that name.
func (o Output) Of(name string) string {
	return path.Join(o.Folder, strings.TrimSuffix(name, o.Trim)+o.Suffix)
}

// clashing are the Outputs that may be one for two names.
func (s *Set) clashing() (out []Output) {
	for i, a := range s.Outputs {
		if a.Trim != "" || slices.ContainsFunc(slices.Concat(s.Outputs[:i], s.Outputs[i+1:]), func(b Output) bool {
			return strings.HasSuffix(a.Suffix, b.Suffix) || strings.HasSuffix(b.Suffix, a.Suffix)
		}) {
			out = append(out, a)
		}
	}
	return out
}

// Split splits the values of a flag such as --input at their commas; `\,` is a
// comma.
func Split(values ...string) []string {
	var out []string
	for _, value := range values {
		var b strings.Builder
		for i := 0; i < len(value); i++ {
			switch {
			case value[i] == '\\' && i+1 < len(value) && value[i+1] == ',':
				b.WriteByte(',')
				i++
			case value[i] == ',':
				out = append(out, b.String())
				b.Reset()
			default:
				b.WriteByte(value[i])
			}
		}
		out = append(out, b.String())
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// New makes a Set of args. Local paths are made absolute, as a worker may
// stand in another folder.
func New(args []string, output string, annotated bool) (*Set, error) {
	if len(args) == 0 {
		return nil, errors.New("input: nothing given; name a file, a folder or a pattern")
	}
	s := &Set{Annotated: annotated}
	var base, out string
	if output != "" {
		var err error
		if out, err = Absolute(output); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		if err := refused(out); err != nil {
			return nil, err
		}
		s.Not = append(s.Not, []byte(out))
	}
	for i, arg := range args {
		arg, err := Absolute(arg)
		if err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		if name, ok := store.Plain(arg); ok {
			arg = name
		}
		if err := refused(arg); err != nil {
			return nil, err
		}
		slash := store.Remote(arg) && strings.HasSuffix(args[i], "/") // a folder, whatever characters it has
		dir := arg
		if !slash {
			dir = folder(arg)
		}
		if out != "" {
			inside := under(arg, out)
			if a, b := real(dir), real(out); a != "" && b != "" {
				inside = inside || under(a, b)
			}
			if inside {
				return nil, fmt.Errorf("input: %s lies in the output folder %s, where nothing is read; choose another --output", args[i], output)
			}
		}
		s.Args = append(s.Args, []byte(arg))
		if slash {
			s.Args[i] = append(s.Args[i], '/')
		}
		if i == 0 {
			base = dir
		} else if base, err = common(base, dir); err != nil {
			return nil, err
		}
	}
	s.Base = []byte(base)
	return s, nil
}

// refused is why package store takes no URI of that scheme, or without one or a bucket.
func refused(uri string) error {
	object, gs := strings.CutPrefix(uri, "gs://")
	if !store.Remote(uri) || gs && !strings.HasPrefix(object+"/", "/") {
		return nil
	}
	_, err := store.For(context.Background(), uri)
	return err
}

// Absolute makes a local path absolute and cleans it; a gs:// address loses
// its last slash, and GS:// is gs://.
func Absolute(uri string) (string, error) {
	if store.Remote(uri) {
		path := strings.Index(uri, "://") + len("://")
		return strings.ToLower(uri[:path]) + strings.TrimRight(uri[path:], "/"), nil
	}
	return filepath.Abs(uri)
}

// Annotated says whether a file of this name is read as YEDDA.
func Annotated(name string) bool { return strings.HasSuffix(name, ".ann") }

// Text says whether a file of this name is taken where a folder is named.
func Text(name string) bool { return strings.HasSuffix(strings.TrimSuffix(name, ".ann"), ".txt") }

// Name is the document's name: its path below Base, without .ann.
func (s *Set) Name(uri string) string { return Name(string(s.Base), uri) }

// Name is uri's path below base without .ann, its last element where base is uri,
// and the whole path, less root or scheme, where it is not below base. It never
// leads out of a folder.
func Name(base, uri string) string {
	rel := uri
	if base != "" && under(uri, base) && len(uri) > len(base) {
		rel = uri[len(base):]
	} else if base == uri { // an object of any name, or a folder: which, nobody knows yet
		rel = path.Base(filepath.ToSlash(uri))
	} else if _, after, ok := strings.Cut(uri, "://"); ok {
		rel = after
	} else {
		rel = uri[len(filepath.VolumeName(uri)):]
	}
	rel = strings.TrimSuffix(filepath.ToSlash(rel), ".ann")
	return strings.TrimPrefix(path.Clean("/"+rel), "/")
}

// Walk calls f for every document, in the order of the listings. It returns
// an error that wraps ErrNone where an argument matches none, and ErrTwins where
// two inputs would have one name.
func (s *Set) Walk(ctx context.Context, f func(File) error) error {
	var err error
	if s.Sample > 0 {
		err = s.sample(ctx, f)
	} else {
		err = s.walk(ctx, f, func(err error) error { return err })
	}
	if t, ok := errors.AsType[*clash](err); ok {
		t.other = s.other(ctx, t)
	}
	return err
}

// WalkOn is Walk where more is to come: a folder or pattern that has none yet is
// no error, and of two inputs with one name the first is passed on, and twins is
// called with the error that tells of both.
func (s *Set) WalkOn(ctx context.Context, f func(File) error, twins func(error)) error {
	return s.walk(ctx, f, func(err error) error {
		switch {
		case errors.Is(err, ErrTwins):
			twins(err)
		case errors.Is(err, fs.ErrNotExist):
			return err
		}
		return nil
	})
}

// walk asks bad what to make of an error that wraps ErrNone or ErrTwins: it goes
// on where that is nil.
func (s *Set) walk(ctx context.Context, f func(File) error, bad func(error) error) error {
	n := &names{set: s, links: s.links(), outputs: s.clashing(), seed: maphash.MakeSeed(),
		taken: map[uint64]uint64{}, written: map[uint64]uint64{}, pairs: map[uint64]bool{}}
	pass := func(file File) error {
		ok, err := n.take(ctx, file)
		if err != nil {
			return bad(err)
		}
		if !ok {
			return nil
		}
		return f(file)
	}
	s.left = leftovers{}
	// Of two files with one name, one may be annotated: the preferred kind is
	// passed on at once, the other kind waits until all names are known.
	var waiting []File
	for _, arg := range s.Args {
		found, inside, before := 0, 0, s.left
		s.left = leftovers{}
		err := s.list(ctx, string(arg), func(file File) error {
			if s.leftOut(file.URI) || n.links.toNot(file) {
				inside++
				return nil
			}
			found++
			if Annotated(file.URI) != s.Annotated {
				waiting = append(waiting, file)
				return nil
			}
			return pass(file)
		})
		if err != nil {
			return err
		}
		if found == 0 {
			if err := bad(s.none(string(arg), inside > 0)); err != nil {
				return err
			}
		}
		s.left = before.and(s.left)
	}
	for _, file := range waiting {
		if err := pass(file); err != nil {
			return err
		}
	}
	s.left.ann = slices.DeleteFunc(s.left.ann, func(uri string) bool {
		_, named := n.taken[n.hash(s.Name(uri))]
		_, pair := n.taken[n.hash(s.Name(strings.TrimSuffix(uri, ".ann")+".txt"))]
		return named || pair
	})
	return nil
}

// none is the ErrNone of an argument, all of whose files, if it has any, lie in a
// folder of Not or were passed over for their names.
func (s *Set) none(arg string, inside bool) error {
	hint := "name a file, a folder with *.txt or *.txt.ann in it, or a pattern"
	if inside {
		hint = "what there is lies in an output folder, where nothing is read"
	} else if passed := s.Passed(); len(passed) > 0 {
		hint = strings.Join(passed, "; ")
	} else if pattern(arg) {
		hint = "a pattern takes files, those below a folder with /** or /**/*.txt at its end"
	}
	err := fmt.Errorf("input: %w in %s; %s", ErrNone, arg, hint)
	if _, missing := os.Stat(arg); missing != nil && !store.Remote(arg) && !pattern(arg) {
		err = fmt.Errorf("%w (%w)", err, fs.ErrNotExist)
		if len(s.Args) > 1 {
			err = fmt.Errorf("%w; a comma in a name is written \\,", err)
		}
	}
	return err
}

// names are those that a Walk has met, as hashes.
type names struct {
	set     *Set
	links   *links
	outputs []Output // that may clash
	seed    maphash.Seed
	taken   map[uint64]uint64 // name → URI
	written map[uint64]uint64 // output → name
	pairs   map[uint64]bool   // X.txt, for X.ann
}

func (n *names) hash(s string) uint64 { return maphash.String(n.seed, s) }

// take says whether a file is the document of its name. Its error wraps ErrTwins.
func (n *names) take(ctx context.Context, file File) (bool, error) {
	name, uri := n.hash(file.Name), n.hash(file.URI)
	if n.set.Annotated && Annotated(file.URI) {
		stem, yedda := strings.CutSuffix(strings.TrimSuffix(file.URI, ".ann"), ".txt")
		both := n.pairs[name]
		if !yedda {
			text := n.hash(file.Name + ".txt")
			n.pairs[text] = true
			both = n.taken[text] == n.hash(stem+".txt.ann")
		}
		if both {
			if there, _ := store.Exists(ctx, stem+".txt"); there { // as far as one can tell
				return false, fmt.Errorf("input: %w: %s.txt has two annotations, %s.ann and %s.txt.ann; leave one of them out", ErrTwins, stem, stem, stem)
			}
		}
	} else if n.pairs[name] {
		return false, nil // X.txt and X.ann
	}
	if path := n.links.amongInputs(file); path != "" {
		return false, overInput(fmt.Sprintf("input: the output %s of %s would lie among the inputs, where a link below --output leads; remove the link", path, file.URI))
	}
	outputs := n.outputs
	if file.Err != nil { // as of a folder in place of its documents
		outputs = nil
	}
	for _, o := range outputs {
		path := o.Of(file.Name)
		h := n.hash(path)
		if other, ok := n.written[h]; ok && other != name {
			return false, &clash{path, file, n.outputs, ""}
		}
		n.written[h] = name
	}
	other, ok := n.taken[name]
	switch {
	case !ok:
		n.taken[name] = uri
		return true, nil
	case other == uri:
		return false, nil // named twice
	case strings.HasSuffix(file.Name, ".txt") && other == n.hash(otherOf(file.URI)):
		return false, nil // X.txt and X.txt.ann, and not a//X.txt of gs://
	}
	return false, &clash{file.Name + ".ann", file, nil, ""}
}

// clash is an ErrTwins of a file and another, whose name other has found.
type clash struct {
	path    string // below the output folder
	file    File
	outputs []Output // one of which is path; nil where the names are equal
	other   string   // "" is unknown
}

func (t *clash) Error() string {
	other := t.other
	if other == "" {
		other = "another"
	}
	return fmt.Sprintf("input: %v: %s of %s and of %s; leave one of them out", ErrTwins, t.path, t.file.URI, other)
}

func (t *clash) Is(target error) bool { return target == ErrTwins }

// other lists anew, as names keeps hashes, and is the URI of the file that t
// clashes with, "" where it is not found.
func (s *Set) other(ctx context.Context, t *clash) (uri string) {
	found, links := errors.New("found"), s.links()
	for _, arg := range s.Args {
		err := s.list(ctx, string(arg), func(f File) error {
			twin := f.Name == t.file.Name && f.URI != t.file.URI && !(strings.HasSuffix(f.Name, ".txt") && f.URI == otherOf(t.file.URI))
			if t.outputs != nil {
				twin = f.Name != t.file.Name && f.Err == nil && slices.ContainsFunc(t.outputs, func(o Output) bool { return o.Of(f.Name) == t.path })
			}
			if !twin || s.leftOut(f.URI) || links.toNot(f) {
				return nil
			}
			uri = f.URI
			return found
		})
		if err != nil {
			break
		}
	}
	return uri
}

// Passed says, a line for each reason, what the last Walk passed over for its name
// though it may be meant: annotations such as "X.txt (1).ann", as a browser calls a
// second export, files such as X.TXT and X.txt.gz, and hidden ones.
func (s *Set) Passed() (lines []string) {
	var ann leftover
	for _, uri := range s.left.ann {
		ann.add(uri)
	}
	for _, l := range []struct {
		leftover
		one, many string
	}{
		{ann, "ends in .ann and not in .txt.ann: not read in a folder; name it by --input, or rename it",
			"end in .ann and not in .txt.ann: not read in a folder; name them by --input, or rename them"},
		{s.left.unlike, "does not end in .txt or .txt.ann, in lower case: not read in a folder; rename or unpack it",
			"do not end in .txt or .txt.ann, in lower case: not read in a folder; rename or unpack them"},
		{s.left.hidden, "is hidden, by a dot at the beginning of its name or of its folder's: not read; name it by --input to read it",
			"are hidden, by a dot at the beginning of their names or of their folders': not read; name them by --input to read them"},
	} {
		switch {
		case l.count == 1:
			lines = append(lines, fmt.Sprintf("%q %s", l.first, l.one))
		case l.count > 1:
			lines = append(lines, fmt.Sprintf("%d files such as %q %s", l.count, l.first, l.many))
		}
	}
	return lines
}

// leftovers are what a Walk did not take.
type leftovers struct {
	ann    []string // with Annotated, *.ann of folders
	unlike leftover // files of folders that are called nearly as documents are
	hidden leftover // files, and folders that cannot be read
}

func (l leftovers) and(m leftovers) leftovers {
	return leftovers{append(l.ann, m.ann...), l.unlike.and(m.unlike), l.hidden.and(m.hidden)}
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

// unlike says whether a file would be Text but for its letters' case, or for being
// packed.
func unlike(name string) bool {
	name = strings.ToLower(name)
	for _, packed := range []string{".gz", ".bz2", ".xz", ".zip"} {
		name = strings.TrimSuffix(name, packed)
	}
	return Text(name)
}

// otherOf is the other of X.txt and X.txt.ann.
func otherOf(uri string) string {
	if stem, annotated := strings.CutSuffix(uri, ".ann"); annotated {
		return stem
	}
	return uri + ".ann"
}

// overInput is an ErrTwins of a document and what its output may be written over.
type overInput string

func (e overInput) Error() string        { return string(e) }
func (e overInput) Is(target error) bool { return target == ErrTwins }

// links tells where the links in local paths lead, as they are at one time.
type links struct {
	set       *Set
	real      map[string]string // what real said of folders
	not, args []string          // the set's folders without links
	outputs   []Output          // and Records
}

func (s *Set) links() *links {
	l := &links{set: s, real: map[string]string{}, outputs: slices.Concat(s.Outputs, s.Records)}
	for _, dir := range s.Not {
		if dir := real(string(dir)); dir != "" {
			l.not = append(l.not, dir)
		}
	}
	for _, arg := range s.Args {
		if dir := real(folder(string(arg))); dir != "" {
			l.args = append(l.args, dir)
		}
	}
	return l
}

// of is real(dir).
func (l *links) of(dir string) string {
	r, ok := l.real[dir]
	if !ok {
		r = real(dir)
		l.real[dir] = r
	}
	return r
}

// toNot says whether a file, or what it is a link to, lies in a folder of Not.
func (l *links) toNot(file File) bool {
	return len(l.not) > 0 && !store.Remote(file.URI) &&
		(anyHolds(l.not, l.of(filepath.Dir(file.URI))) || file.Link && anyHolds(l.not, real(file.URI)))
}

// amongInputs is the first output of a file that would lie outside of the output
// folder and in a folder of the inputs, or "".
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
		if under(dir, output) && !under(lies, l.of(output)) && (anyHolds(l.args, lies) || lies == l.of(filepath.Dir(file.URI))) {
			return path
		}
	}
	return ""
}

// anyHolds says whether dir is one of the folders or lies below one.
func anyHolds(folders []string, dir string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return under(dir, f) })
}

// leftOut says whether a path is a folder of Not or lies below one.
func (s *Set) leftOut(path string) bool {
	return slices.ContainsFunc(s.Not, func(dir []byte) bool { return under(path, string(dir)) })
}

// list calls f for what one argument stands for.
func (s *Set) list(ctx context.Context, arg string, f func(File) error) error {
	st, err := store.For(ctx, arg)
	if err != nil {
		return err
	}
	head, looked := "", map[string]bool{} // of a pattern with **
	if strings.Contains(arg, "**") && pattern(arg) {
		head = store.Head(arg)
	}
	var failed error // of f, which is no word about the listing
	err = st.List(ctx, arg, func(o store.Object) error {
		if head != "" {
			s.noticeAbove(arg, head, o.Path, looked)
		}
		other := o.InFolder && !Text(o.Path) && (o.Err == nil || errors.Is(o.Err, store.ErrNotFile))
		switch {
		case o.Hidden && (other || s.leftOut(o.Path)):
			return nil
		case o.Hidden:
			s.left.hidden.add(o.Path)
			return nil
		case other:
			s.notice(arg, o.Path)
			switch {
			case s.leftOut(o.Path):
			case s.Annotated && Annotated(o.Path):
				s.left.ann = append(s.left.ann, o.Path)
			case unlike(o.Path):
				s.left.unlike.add(o.Path)
			}
			return nil // a folder's other files; what may be a folder and cannot be read is told of by who tries
		}
		failed = f(File{URI: o.Path, Name: s.Name(o.Path), Size: o.Size, Modified: o.Modified, Access: o.Access, Link: o.Link, Err: o.Err})
		return failed
	})
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, store.ErrNoBucket):
		return fmt.Errorf("input: %w: %w", ErrNone, err)
	case errors.Is(err, store.ErrNotExist):
		return nil // told as ErrNone
	}
	return err
}

// noticeAbove is notice for a file that a pattern with ** came upon, and for a local
// run's manifest in the folders above that, which the pattern need not match.
func (s *Set) noticeAbove(arg, head, file string, looked map[string]bool) {
	s.notice(arg, file)
	if store.Remote(arg) {
		return
	}
	for dir := filepath.Dir(file); under(dir, head) && !looked[dir]; dir = filepath.Dir(dir) {
		looked[dir] = true
		manifest := filepath.Join(dir, "_manifest.jsonl")
		if _, err := os.Stat(manifest); err == nil {
			s.notice(arg, manifest)
		}
	}
}

// notice keeps in mind that a file shows its folder, arg or one below it, to be the
// output of a run.
func (s *Set) notice(arg, file string) {
	file = filepath.ToSlash(file)
	dir, record, ok := strings.Cut(file, "/_done/")
	if !ok || !strings.HasSuffix(record, ".json") {
		if dir, ok = strings.CutSuffix(file, "/_manifest.jsonl"); !ok {
			return
		}
	}
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

// LeaveOut adds the folders below arguments in which the last Walk saw an
// earlier run's output to Not, and says which they are in one line, "" where
// there were none. What such a folder holds is read only where it is named.
// The Walk has to be done again, then.
func (s *Set) LeaveOut() string {
	links := s.links()
	maps.DeleteFunc(s.earlier, func(dir string, _ bool) bool { return !store.Remote(dir) && anyHolds(links.not, real(dir)) }) // not read anyway
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
	return fmt.Sprintf("%q%s below --input: output of an earlier run, not read; name it by --input to read it", dirs[0], more)
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
	return fmt.Sprintf("%q is the output of an earlier run: what nobody has corrected there are a model's labels, not annotation", dir)
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

// sample passes on the Sample files whose names have the smallest hashes.
func (s *Set) sample(ctx context.Context, f func(File) error) error {
	type ranked struct {
		rank uint64
		file File
	}
	order := func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.file.Name, b.file.Name))
	}
	var best []ranked // the first Sample of all so far, and some more
	var last ranked   // of these, once there are so many
	first := func() {
		slices.SortFunc(best, order)
		if len(best) >= s.Sample {
			clear(best[s.Sample:])
			best = best[:s.Sample]
			last = best[s.Sample-1]
		}
	}
	err := s.walk(ctx, func(file File) error {
		r := ranked{hash64(file.Name), file}
		if last.file.URI != "" && order(r, last) > 0 {
			return nil
		}
		if best = append(best, r); len(best)/2 >= s.Sample {
			first()
		}
		return nil
	}, func(err error) error { return err })
	if err != nil {
		return err
	}
	first()
	for _, r := range best {
		if err := f(r.file); err != nil {
			return err
		}
	}
	return nil
}

// hash64 is FNV-1a with murmur3's finaliser, so that near names lie far apart.
func hash64(s string) uint64 {
	fnv1a := fnv.New64a()
	io.WriteString(fnv1a, s)
	h := fnv1a.Sum64()
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// pattern says whether arg has wildcards; a local file or folder of that very
// name wins.
func pattern(arg string) bool {
	if !strings.ContainsAny(arg, "*?[") {
		return false
	}
	if store.Remote(arg) {
		return true
	}
	_, err := os.Lstat(arg)
	return err != nil
}

// folder is the folder that arg's documents lie in: arg itself, the folder of
// a file, or what stands before a pattern's first wildcard.
func folder(arg string) string {
	if pattern(arg) {
		return store.Head(arg)
	}
	if store.Remote(arg) {
		if Text(arg) {
			return parent(arg)
		}
		return arg
	}
	if st, err := os.Stat(arg); err == nil && !st.IsDir() {
		return filepath.Dir(arg)
	}
	return arg
}

// real is a local folder with its symbolic links resolved, "" where that fails.
func real(dir string) string {
	if store.Remote(dir) {
		return ""
	}
	r, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	return r
}

// parent is uri without its last element.
func parent(uri string) string {
	if !store.Remote(uri) {
		return filepath.Dir(uri)
	}
	root := strings.Index(uri, "://") + 3
	if i := strings.LastIndexByte(uri, '/'); i >= root {
		return uri[:i]
	}
	return uri
}

// common is the deepest folder that holds a and b.
func common(a, b string) (string, error) {
	if store.Remote(a) != store.Remote(b) {
		return "", errors.New("input: local files and gs:// in one run have no folder in common; run once for each")
	}
	for !under(b, a) {
		p := parent(a)
		if p == a {
			if store.Remote(a) {
				return "", fmt.Errorf("input: %s and %s have no folder in common; run once for each", a, b)
			}
			return a, nil
		}
		a = p
	}
	return a, nil
}

// under says whether uri is dir or lies below it.
func under(uri, dir string) bool {
	if !strings.HasPrefix(uri, dir) {
		return false
	}
	return len(uri) == len(dir) || os.IsPathSeparator(dir[len(dir)-1]) || uri[len(dir)] == '/' || os.IsPathSeparator(uri[len(dir)])
}
