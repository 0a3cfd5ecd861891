// Package store reads, lists, writes and locks what stands in local files and
// in Google Cloud Storage, behind one small interface. A place is named by a
// URI: a local path as the system knows it, of any bytes, or gs://bucket/object.
//
// A write is whole or not there: locally a temporary file and a rename, on
// gs:// one upload with a generation precondition. So a retry is harmless, and
// nobody sees half a document. Local writes are not synced to the disk: a
// killed process loses nothing that Write returned for, a machine that loses
// power may lose, or leave empty, what was written in its last half minute.
//
// Errors are one line, name the place and wrap the sentinels below.
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Errors to test for with errors.Is.
var (
	ErrNotExist = fs.ErrNotExist
	ErrNoBucket = errors.New("no bucket") // of gs://; it is ErrNotExist, too
	ErrTooLarge = errors.New("too large")
	ErrLocked   = errors.New("locked by another run")
	ErrLost     = errors.New("the lock was lost") // another run may have written, too
	ErrChanged  = errors.New("changed while it was read")
	ErrFolder   = errors.New("is a folder") // a local one, where a file should be
	ErrNotFile  = errors.New("not a file")  // a local pipe, socket, device or folder; no retry helps
	ErrTaken    = errors.New("is there already")
	// ErrName is a name that the store cannot hold, such as bytes that are no
	// UTF-8 on gs://. No retry helps.
	ErrName = errors.New("impossible name")
)

// Object is one file that List found.
type Object struct {
	Path     string // a URI for Read; may hold any bytes
	Size     int64  // bytes
	Modified time.Time
	// Access is what decides who may read it, where the system has that: mode, owner
	// and group.
	Access [3]uint32
	// Link says that Path is a symbolic link, which List or Look came upon.
	Link bool
	// InFolder tells that the object was found below a folder that was listed;
	// it was neither named itself nor matched by a pattern.
	InFolder bool
	// Hidden tells that its name, or that of a folder on the way, begins with a dot
	// which the URI does not spell: a listing or a wildcard came upon it.
	Hidden bool
	// Err tells why the object cannot be read, or the folder Path not listed: a
	// dangling link, no permission, no regular file. The rest is listed.
	Err error
}

// Store is one place for files. It is safe for concurrent use. A URI must be of
// the kind that For got.
type Store interface {
	// List calls fn with every file that uri names: a file, a folder (all below
	// it) or a pattern: * and ? stay within a name, [a-z] and [!a-z] are one
	// character of a set, ** crosses folders ("a/**/*.txt" has "a/b.txt" too),
	// \ takes the special meaning of the next character. What exists by that
	// very name wins over the pattern, and a uri that ends in a slash is a
	// folder of that very name, never a pattern. Order is that of bytes, locally within a
	// folder; links to folders come last, after them hidden folders, and no folder
	// is listed twice. No more than one page of names of gs://, or of each folder on
	// the way, is held at a time.
	//
	// List fails with fn's error, and with ErrNotExist where uri names nothing
	// or the pattern matches nothing.
	List(ctx context.Context, uri string, fn func(Object) error) error
	// Stat describes the file of that very name. A folder is an error.
	Stat(ctx context.Context, uri string) (Object, error)
	// Look is Stat of what may be no file: an object's Err tells why it cannot be
	// read, ErrFolder of a folder that can be listed, and its Link that it is one,
	// be it to nothing.
	Look(ctx context.Context, uri string) (Object, error)
	// Read returns the whole content. One of more than limit bytes is a
	// *TooLarge, and is not read; limit 0 is no limit.
	Read(ctx context.Context, uri string, limit int64) ([]byte, error)
	// Write makes uri hold data, all or nothing, with the folders above.
	Write(ctx context.Context, uri string, data []byte) error
	// Add is Write where nothing stands at uri, and fails with ErrTaken where
	// something does that is not data already or, as a power cut leaves it, its
	// beginning. Added is false where it is data already. It costs no more than
	// Write, but for a stat locally.
	Add(ctx context.Context, uri string, data []byte) (added bool, err error)
	// Create is Write for what is too large to hold: uri gets what write writes,
	// or stays as it was where write returns an error. After a first try that
	// was in vain write is called again.
	Create(ctx context.Context, uri string, write func(io.Writer) error) error
	// Delete deletes a file, or an empty local folder. It is no error when
	// there is none.
	Delete(ctx context.Context, uri string) error
	// Lock takes the lock of that name or fails at once with ErrLocked. A lock
	// of a dead process is free: locally at once, on gs:// after 5 minutes.
	// Unlock's error wraps ErrLost where the lock is known to have been lost on the
	// way.
	Lock(ctx context.Context, uri string) (unlock func() error, err error)

	sub(ctx context.Context, uri string) (fs.FS, error) // for Sub
}

// For returns the store of a URI. A scheme other than gs:// is refused, and so is what
// has :// behind no scheme.
func For(ctx context.Context, uri string) (Store, error) { return WithTemp(ctx, uri, "") }

// WithTemp is For with a folder where local writes make temporary files. It is
// made when it is needed and stays; it should be on the disk of what is written,
// otherwise, and by For, the target's own folder is used.
func WithTemp(ctx context.Context, uri, tempDir string) (Store, error) {
	scheme := schemeOf(uri)
	switch {
	case !Remote(uri):
		return local{tempDir}, nil
	case scheme == "":
		return nil, fmt.Errorf("store: %q: no scheme stands before ://; give gs://bucket/object, or a local path without ://", uri)
	case scheme == "gs":
		return forGS(ctx, uri)
	case scheme == "file":
		return nil, fmt.Errorf("store: %s: file:// is not supported; give the path itself", quote(uri))
	default:
		return nil, fmt.Errorf("store: %s: %s:// is not supported; give a local path or gs://bucket/object", quote(uri), scheme)
	}
}

// Read is Store.Read for one file alone.
func Read(ctx context.Context, uri string, limit int64) ([]byte, error) {
	st, err := For(ctx, uri)
	if err != nil {
		return nil, err
	}
	return st.Read(ctx, uri, limit)
}

// Write is Store.Write for one file alone.
func Write(ctx context.Context, uri string, data []byte) error {
	st, err := For(ctx, uri)
	if err != nil {
		return err
	}
	return st.Write(ctx, uri, data)
}

// Delete is Store.Delete for one file alone.
func Delete(ctx context.Context, uri string) error {
	st, err := For(ctx, uri)
	if err != nil {
		return err
	}
	return st.Delete(ctx, uri)
}

// Exists reports whether there is a file of that very name.
func Exists(ctx context.Context, uri string) (bool, error) {
	st, err := For(ctx, uri)
	if err == nil {
		_, err = st.Stat(ctx, uri)
	}
	if errors.Is(err, ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Sub returns the folder, or gs:// prefix, as an fs.FS, for a model: files of
// gs:// are read whole when they are opened, at most 2 GiB, and no name leads out
// of the folder, but links do, as where a cache holds the files by their hashes. The
// context is used as long as the FS is.
func Sub(ctx context.Context, uri string) (fs.FS, error) {
	s, err := For(ctx, uri)
	if err != nil {
		return nil, err
	}
	return s.sub(ctx, uri)
}

// Join appends the elements to base, with one slash between. Locally the result
// is cleaned as filepath.Join does; elements of a gs:// URI stay as they are.
func Join(base string, elem ...string) string {
	if !Remote(base) {
		return filepath.Join(append([]string{base}, elem...)...)
	}
	for _, e := range elem {
		base = strings.TrimSuffix(base, "/") + "/" + e
	}
	return base
}

// Remote reports whether a URI is no local path. For refuses some that are none.
func Remote(uri string) bool { return strings.Contains(uri, "://") }

// schemeOf is the scheme of a URI, lower-cased, or "".
func schemeOf(uri string) string {
	scheme, _, ok := strings.Cut(uri, "://")
	if !ok {
		return ""
	}
	scheme = strings.ToLower(scheme)
	for i, c := range []byte(scheme) {
		if letter := 'a' <= c && c <= 'z'; !letter && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(c))) {
			return ""
		}
	}
	return scheme
}

// taken is Add's error where something stands at uri, and read, which returned
// content and err, does not find the beginning of data there. Where err is of the store,
// and not of what stands there, it is that.
func taken(uri string, data, content []byte, err error) error {
	if err == nil && bytes.HasPrefix(data, content) {
		return nil
	}
	if err != nil && !slices.ContainsFunc([]error{ErrTooLarge, ErrNotFile, ErrFolder, ErrChanged, fs.ErrPermission}, func(e error) bool { return errors.Is(err, e) }) {
		return err
	}
	return fmt.Errorf("store: %s: %w", quote(uri), ErrTaken)
}

// Unwritten is st that nothing is written to, for one goroutine: its Write, Create and
// Delete do nothing, and its Add fails with ErrTaken where that of st would.
func Unwritten(st Store) Store { return unwritten{st, map[string]bool{}} }

type unwritten struct {
	Store
	deleted map[string]bool
}

func (unwritten) Write(context.Context, string, []byte) error { return nil }

func (unwritten) Create(context.Context, string, func(io.Writer) error) error { return nil }

func (u unwritten) Delete(_ context.Context, uri string) error {
	u.deleted[uri] = true
	return nil
}

func (u unwritten) Add(ctx context.Context, uri string, data []byte) (bool, error) {
	content, err := u.Read(ctx, uri, int64(len(data))+1)
	switch {
	case errors.Is(err, ErrNotExist), u.deleted[uri]:
		return true, nil
	case Remote(uri) && err != nil && !errors.Is(err, ErrTooLarge):
		return false, err
	}
	return len(content) < len(data), taken(uri, data, content, err) // as a local one that cannot be read is
}

// quote makes a URI fit for a line of an error: as it is, or quoted where it
// has control characters or bytes that are no UTF-8.
func quote(uri string) string {
	q := fmt.Sprintf("%q", uri)
	if strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(q[1:len(q)-1]) == uri {
		return uri
	}
	return q
}

// TooLarge is an ErrTooLarge of Read.
type TooLarge struct {
	URI   string
	Size  int64 // bytes; -1 where they are counted while they come, as of gzip on gs://
	Limit int64
}

func (e *TooLarge) Error() string {
	size := fmt.Sprintf("%d bytes", e.Size)
	if e.Size < 0 {
		size = fmt.Sprintf("more than %d bytes", e.Limit)
	}
	return fmt.Sprintf("store: %s: %s, the limit is %d: %v", quote(e.URI), size, e.Limit, ErrTooLarge)
}

func (e *TooLarge) Unwrap() error { return ErrTooLarge }
