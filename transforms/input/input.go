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
	"os"
	"path"
	"slices"
	"strings"
	"time"

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
			return nil, err
		}
		if err := refused(out); err != nil {
			return nil, err
		}
		s.Not = append(s.Not, []byte(out))
	}
	for i, arg := range args {
		arg, err := Absolute(arg)
		if err != nil {
			return nil, err
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
		if out != "" && (under(arg, out) || within(dir, out)) {
			return nil, fmt.Errorf("input: %s lies in the output folder %s, where nothing is read; choose another --output", args[i], output)
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

// isAnnotation reports whether a file of this name is annotation, of YEDDA or brat.
func isAnnotation(name string) bool { return strings.HasSuffix(name, ".ann") }

// Text reports whether a file of this name is taken where a folder is named.
func Text(name string) bool { return strings.HasSuffix(strings.TrimSuffix(name, ".ann"), ".txt") }

// Name is the document's name: its path below Base, without .ann.
func (s *Set) Name(uri string) string { return Name(string(s.Base), uri) }

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
	n := &names{set: s, folds: s.folds(), links: s.links(), outputs: s.clashing(), seed: maphash.MakeSeed(),
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
	withText := func(pdf string) bool {
		stem := pdf[:len(pdf)-len(".pdf")]
		return slices.ContainsFunc([]string{stem + ".txt", pdf + ".txt", stem + "_djvu.txt"}, func(text string) bool {
			_, taken := n.taken[n.called(s.Name(text))]
			return taken
		})
	}
	most := 1 << 12 // PDFs in memory, most of which have their text listed soon after
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
			if len(s.left.pdf) > most {
				s.left.pdf = slices.DeleteFunc(s.left.pdf, withText)
				most = max(most, 2*len(s.left.pdf))
			}
			if isAnnotation(file.URI) != s.Annotated {
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
	s.left.pdf = slices.DeleteFunc(s.left.pdf, withText)
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

// leftOut reports whether a path is a folder of Not or lies below one.
func (s *Set) leftOut(path string) bool {
	return slices.ContainsFunc(s.Not, func(dir []byte) bool { return under(path, string(dir)) })
}

// list calls f for what one argument stands for.
func (s *Set) list(ctx context.Context, arg string, f func(File) error) error {
	st, err := store.For(ctx, arg)
	if err != nil {
		return err
	}
	head, looked := arg, map[string]bool{}
	deep := pattern(arg) && strings.Contains(arg, "**")
	if deep {
		head = store.Head(arg)
	}
	var failed error // of f, which is no word about the listing
	err = st.List(ctx, arg, func(o store.Object) error {
		if (deep || o.InFolder) && !o.Hidden {
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
			switch {
			case s.leftOut(o.Path):
			case s.Annotated && isAnnotation(o.Path):
				s.left.ann = append(s.left.ann, o.Path)
			case unlike(o.Path):
				s.left.unlike.add(o.Path)
			case !s.Annotated && strings.EqualFold(path.Ext(o.Path), ".pdf"):
				s.left.pdf = append(s.left.pdf, o.Path)
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
