package input

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/linnet-ml/linnet/transforms/store"
)

// names are those that a Walk has met, as hashes.
type names struct {
	set     *Set
	folds   bool // Set.folds
	links   *links
	outputs []Output // that may clash
	seed    maphash.Seed
	taken   map[uint64]uint64 // name → URI
	written map[uint64]uint64 // output → name
	pairs   map[uint64]bool   // X.txt, for X.ann
}

func (n *names) hash(s string) uint64 { return maphash.String(n.seed, s) }

// called is the hash of a name, of a document or of an output.
func (n *names) called(name string) uint64 {
	if n.folds {
		name = strings.ToLower(name)
	}
	return n.hash(name)
}

// folds reports whether the output folder, which a run has begun to write to, takes A and a
// for one name, as that of a Mac or on a USB stick does.
func (s *Set) folds() bool {
	if len(s.Outputs) == 0 || len(s.Not) == 0 {
		return false
	}
	dir, other := string(s.Not[0]), "_MANIFEST.JSONL"
	manifest, err := os.Stat(filepath.Join(dir, strings.ToLower(other)))
	there, missing := os.Stat(filepath.Join(dir, other))
	if err != nil || missing != nil {
		return false
	}
	return os.SameFile(manifest, there) || !lists(dir, other) // by exfat-fuse each spelling has a number of its own
}

// lists reports whether a listing of a folder has that very name, as far as can be told.
func lists(dir, name string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(1024)
		if slices.Contains(names, name) {
			return true
		}
		if err != nil {
			return err != io.EOF
		}
	}
}

// take reports whether a file is the document of its name. Its error wraps ErrTwins.
func (n *names) take(ctx context.Context, file File) (bool, error) {
	name, uri := n.called(file.Name), n.hash(file.URI)
	if n.set.Annotated && isAnnotation(file.URI) {
		stem, yedda := strings.CutSuffix(strings.TrimSuffix(file.URI, ".ann"), ".txt")
		both := n.pairs[name]
		if !yedda {
			text := n.called(file.Name + ".txt")
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
		return false, overInput(fmt.Sprintf("input: the output %s of %s would lie among the inputs, where a link or a mount below --output leads; remove that", path, file.URI))
	}
	outputs := n.outputs
	if file.Err != nil { // as of a folder in place of its documents
		outputs = nil
	}
	for _, o := range outputs {
		path := o.Of(file.Name)
		h := n.called(path)
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
	case strings.HasSuffix(file.Name, ".txt") && other == n.hash(counterpart(file.URI)):
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
	return fmt.Sprintf("input: %v: %s of %s and of %s; leave one of them out", ErrTwins, t.path, t.file.URI, cmp.Or(t.other, "another"))
}

func (t *clash) Is(target error) bool { return target == ErrTwins }

// other lists anew, as names keeps hashes, and is the URI of the file that t
// clashes with, "" where it is not found.
func (s *Set) other(ctx context.Context, t *clash) (uri string) {
	found, links := errors.New("found"), s.links()
	same := func(a, b string) bool { return a == b }
	if s.folds() {
		same = strings.EqualFold
	}
	for _, arg := range s.Args {
		err := s.list(ctx, string(arg), func(f File) error {
			twin := same(f.Name, t.file.Name) && f.URI != t.file.URI && !(strings.HasSuffix(f.Name, ".txt") && f.URI == counterpart(t.file.URI))
			if t.outputs != nil {
				twin = f.Name != t.file.Name && f.Err == nil && slices.ContainsFunc(t.outputs, func(o Output) bool { return same(o.Of(f.Name), t.path) })
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

// overInput is an ErrTwins of a document and what its output may be written over.
type overInput string

func (e overInput) Error() string        { return string(e) }
func (e overInput) Is(target error) bool { return target == ErrTwins }
