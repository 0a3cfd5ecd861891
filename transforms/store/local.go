package store

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// local is the file system.
type local struct{ tempDir string }

// localError says uri and the cause, without the system call's name.
func localError(uri string, err error) error {
	call, at := "", uri
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		call, at, err = path.Op, path.Path, path.Err
	} else if link, ok := errors.AsType[*os.LinkError](err); ok {
		call, at, err = link.Op, link.New, link.Err
	}
	if cutName(uri) && errors.Is(err, ErrNotExist) {
		return fmt.Errorf("store: %s: %w: Windows takes no dot or blank at its end", quote(uri), ErrName)
	}
	if impossibleName(call, at, err) || strings.ContainsRune(uri, 0) { // as gs:// may have
		return fmt.Errorf("store: %s: %w: %w", quote(uri), ErrName, err)
	}
	if err == syscall.EMFILE { // not that of another file, which says it
		return fmt.Errorf("store: %s: %w; raise ulimit -n", quote(uri), err)
	}
	return fmt.Errorf("store: %s: %w", quote(uri), err)
}

// readError is localError of what is read, with what to do where that may not be.
func readError(uri string, err error) error {
	if err = localError(uri, err); errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; allow reading it", err)
	}
	return err
}

// WriteError is err, of a write to the local uri that another package may have
// done, with what to do.
func WriteError(uri string, err error) error {
	used := inUse(err)
	err = localError(uri, err)
	switch {
	case errors.Is(err, ErrName): // in another folder, too
		return err
	case used:
		return fmt.Errorf("%w; close it in other programs, allow writing to it, and run again", err)
	case errors.Is(err, syscall.EFBIG): // a batch queue may set it
		return fmt.Errorf("%w; raise ulimit -f, or choose a folder on another disk, and run again", err)
	case diskFull(err):
		return fmt.Errorf("%w; free some space, or choose a folder on another disk, and run again", err)
	case errors.Is(err, errors.ErrUnsupported): // as renaming is on a mounted bucket
		return fmt.Errorf("%w: this disk cannot do that; choose a folder on another disk", err)
	case readOnly(err), errors.Is(err, ErrNotExist), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; %s", err, otherFolder)
	}
	return err
}

// FolderError is err, of the first look at a folder or the first write there, with
// what to do where a file, or a link to nowhere or to itself, stands in the folder's place,
// unless WriteError has said it: on Windows what lies below a file does not exist.
func FolderError(err error) error {
	if (errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ELOOP)) && !strings.HasSuffix(err.Error(), otherFolder) {
		return fmt.Errorf("%w; %s", err, otherFolder)
	}
	return err
}

// Writable finds out before long work whether its result can be written to a local
// folder. It leaves nothing but folders above.
func Writable(ctx context.Context, to string) error {
	st, err := For(ctx, to)
	if err != nil || Remote(to) {
		return err
	}
	_, there := os.Stat(to)
	probe := Join(to, fmt.Sprintf(".linnet-%d", os.Getpid())) // which nobody else has there
	if err := st.Write(ctx, probe, nil); err != nil {
		return FolderError(err)
	}
	if err := st.Delete(ctx, probe); err != nil || !errors.Is(there, ErrNotExist) {
		return err
	}
	return st.Delete(ctx, to)
}

// Same reports whether two local files, or folders, that were looked at are one. Size and
// time count, too: a disk that is made of several, as a machine shares them with a virtual
// one, can give one number to several files.
func Same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

const otherFolder = "choose a folder that can be written to"

func (local) Stat(_ context.Context, uri string) (Object, error) {
	info, err := os.Stat(uri)
	if err != nil {
		return Object{}, readError(uri, err)
	}
	if !info.Mode().IsRegular() {
		return Object{}, notRegular(uri, info)
	}
	return Object{Path: filepath.Clean(uri), Size: info.Size(), Modified: info.ModTime(), Access: accessOf(info)}, nil
}

func (local) Look(_ context.Context, uri string) (Object, error) {
	info, err := os.Lstat(uri)
	if errors.Is(err, syscall.ENOTDIR) { // a file lies where its folder was
		err = ErrNotExist
	}
	if err != nil {
		return Object{}, readError(uri, err)
	}
	o := Object{Path: filepath.Clean(uri), Link: info.Mode()&fs.ModeSymlink != 0}
	if o.Link {
		if info, err = os.Stat(uri); err != nil {
			o.Err = linkError(uri, err)
			return o, nil
		}
	}
	o.Size, o.Modified, o.Access = info.Size(), info.ModTime(), accessOf(info)
	if !info.Mode().IsRegular() {
		o.Err = unreadable(uri, info)
	}
	return o, nil
}

func (local) Read(ctx context.Context, uri string, limit int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := os.Stat(uri)
	if err != nil {
		return nil, readError(uri, err)
	}
	if !info.Mode().IsRegular() { // to open a pipe would wait for its writer
		return nil, unreadable(uri, info)
	}
	f, err := open(uri)
	if err != nil {
		return nil, readError(uri, err)
	}
	defer f.Close()
	before, err := f.Stat() // of the file that was opened: a write may have renamed another to uri since
	if err != nil {
		return nil, readError(uri, err)
	}
	if limit > 0 && before.Size() > limit {
		return nil, &TooLarge{uri, before.Size(), limit}
	}
	data := make([]byte, before.Size()+1)
	n, err := io.ReadFull(f, data)
	if err != io.EOF && err != io.ErrUnexpectedEOF && err != nil {
		return nil, readError(uri, err)
	}
	after, err := f.Stat()
	if err != nil {
		return nil, readError(uri, err)
	}
	if int64(n) != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) && !holds(f, data[:n]) {
		return nil, fmt.Errorf("store: %s: %w", quote(uri), ErrChanged)
	}
	return data[:n:n], nil
}

// holds reports whether f, read once more, has those bytes. Its time alone changes where
// a mount of a remote store has sent it off since, which knows whole seconds, say.
func holds(f *os.File, data []byte) bool {
	again := make([]byte, len(data)+1)
	n, err := f.ReadAt(again, 0)
	return err == io.EOF && bytes.Equal(again[:n], data)
}

func (l local) Write(ctx context.Context, uri string, data []byte) error {
	return l.create(ctx, uri, func(f *os.File) error { _, err := f.Write(data); return err })
}

func (l local) Add(ctx context.Context, uri string, data []byte) (bool, error) {
	info, err := os.Lstat(uri) // renaming takes the place of a link, wherever that leads
	switch {
	case err == nil && !info.IsDir():
		content, err := l.Read(ctx, uri, int64(len(data))+1)
		if errors.Is(err, ErrNotExist) { // deleted in between, or a link to nowhere
			return true, l.Write(ctx, uri, data)
		}
		if err := taken(uri, data, content, err); err != nil || len(content) == len(data) {
			return false, cmp.Or(err, ctx.Err())
		}
	case err != nil && !errors.Is(err, ErrNotExist): // what stands there is unknown
		return false, WriteError(uri, err)
	}
	return true, l.Write(ctx, uri, data)
}

func (l local) Create(ctx context.Context, uri string, write func(io.Writer) error) error {
	return l.create(ctx, uri, func(f *os.File) error {
		b := bufio.NewWriterSize(f, 64<<10)
		if err := write(b); err != nil {
			return err
		}
		return b.Flush()
	})
}

func (l local) create(ctx context.Context, uri string, write func(*os.File) error) error {
	target := filepath.Clean(uri)
	beside := filepath.Dir(target)
	dir := cmp.Or(l.tempDir, beside)
	var own error // of write, which may be that of another file
	content := func(f *os.File) error {
		own = write(f)
		return own
	}
	err := writeBy(ctx, dir, target, content)
	if errors.Is(err, ErrNotExist) && own == nil { // somebody removed the file, or its folder, as it was written
		err = writeBy(ctx, dir, target, content)
	}
	if errors.Is(err, syscall.EXDEV) && dir != beside { // another disk
		err = writeBy(ctx, beside, target, content)
	}
	if _, renamed := errors.AsType[*os.LinkError](err); renamed {
		if info, e := os.Stat(target); e == nil && info.IsDir() {
			return notRegular(target, info)
		}
	}
	switch {
	case err == nil:
		return nil
	case own != nil && !diskFull(own) && !readOnly(own):
		return localError(uri, err)
	}
	return WriteError(uri, err)
}

// writeBy has a temporary file written in dir and renames it to target. A folder
// is made when its lack was noticed, which saves the calls for all other files.
func writeBy(ctx context.Context, dir, target string, write func(*os.File) error) (err error) {
	temp := filepath.Join(dir, "."+rand.Text()+tempSuffix)
	var f *os.File
	err = inFolder(dir, func() (err error) {
		f, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temp)
		}
	}()
	if err = cmp.Or(write(f), f.Close(), ctx.Err()); err != nil {
		return err
	}
	return inFolder(filepath.Dir(target), func() error { return rename(temp, target) })
}

const tempSuffix = ".tmp"

// Temporary reports whether a local write may have left a file of this name.
func Temporary(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, tempSuffix)
}

// inFolder calls f, and once more when dir did not exist and now does.
func inFolder(dir string, f func() error) error {
	err := f()
	if !errors.Is(err, ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return f()
}

func (local) Delete(_ context.Context, uri string) error {
	if err := remove(uri); err != nil && !errors.Is(err, ErrNotExist) {
		return WriteError(uri, err)
	}
	return nil
}

func (local) sub(_ context.Context, uri string) (fs.FS, error) {
	root, err := os.OpenRoot(uri) // is a folder
	if err != nil {
		return nil, localError(uri, err)
	}
	root.Close()
	return os.DirFS(uri), nil
}
