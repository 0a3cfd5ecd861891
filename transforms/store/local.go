package store

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// local is the file system.
type local struct{ tempDir string }

// localError says uri and the cause, without the system call's name.
func localError(uri string, err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	} else if link, ok := errors.AsType[*os.LinkError](err); ok {
		err = link.Err
	}
	if impossibleName(err) || strings.ContainsRune(uri, 0) { // as gs:// may have
		return fmt.Errorf("store: %s: %w: %w", quote(uri), ErrName, err)
	}
	return fmt.Errorf("store: %s: %w", quote(uri), err)
}

// WriteError is err, of a write to the local uri that another package may have
// done, with what to do.
func WriteError(uri string, err error) error {
	err = localError(uri, err)
	switch {
	case diskFull(err):
		return fmt.Errorf("%w; free some space, or choose a folder on another disk, and run again", err)
	case readOnly(err), errors.Is(err, ErrNotExist), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; %s", err, otherFolder)
	}
	return err
}

// FolderError is err, of the first look at a folder or the first write there, with
// what to do where a file or a link to nowhere stands in the folder's place, unless
// WriteError has said it: on Windows what lies below a file does not exist.
func FolderError(err error) error {
	if (errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist)) && !strings.HasSuffix(err.Error(), otherFolder) {
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
	probe := Join(to, ".linnet")
	if err := st.Write(ctx, probe, nil); err != nil {
		return FolderError(err)
	}
	if err := st.Delete(ctx, probe); err != nil || there == nil {
		return err
	}
	return st.Delete(ctx, to)
}

const otherFolder = "choose a folder that can be written to"

func (local) List(ctx context.Context, uri string, fn func(Object) error) error {
	if uri == "" {
		return errors.New("store: the path is empty; give a file, a folder or a pattern")
	}
	path := filepath.Clean(uri)
	w := walker{ctx: ctx, base: path, fn: fn, entered: make(map[fileID]bool)}
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return w.named(path)
	case !hasMeta(path) || os.IsPathSeparator(uri[len(uri)-1]):
		return localError(uri, err)
	}
	base, rest := literalHead(filepath.ToSlash(path))
	w.base, w.pattern = base, parsePattern(rest)
	info, err := os.Stat(base)
	if err != nil && !errors.Is(err, ErrNotExist) {
		return localError(base, err)
	}
	if err == nil && info.IsDir() {
		if err := w.root(base, info); err != nil {
			return err
		}
	}
	if !w.reported {
		return fmt.Errorf("store: %s: nothing matches the pattern: %w", quote(uri), ErrNotExist)
	}
	return nil
}

// literalHead splits a pattern into the folder where the search begins and the
// rest. Folders that exist by their very names are no pattern.
func literalHead(path string) (base, rest string) {
	volume := filepath.VolumeName(path) // of Windows: C: and C:/ are two folders
	names := strings.Split(path[len(volume):], "/")
	base = volume
	if names[0] == "" {
		base, names = volume+"/", names[1:]
	}
	for len(names) > 1 {
		next := filepath.Join(base, names[0])
		if _, err := os.Lstat(next); err != nil {
			text, plain := parsePattern(names[0]).literalText()
			if !plain {
				break
			}
			next = filepath.Join(base, text)
		}
		base, names = next, names[1:]
	}
	if base == "" {
		base = "."
	}
	return base, strings.Join(names, "/")
}

// walker lists one uri.
type walker struct {
	ctx      context.Context
	base     string // where it began
	fn       func(Object) error
	pattern  pattern // nil: everything
	entered  map[fileID]bool
	links    []folder // to folders, for the end
	hidden   []folder // for the very end: what else leads to them is no less to be read
	reported bool
}

type folder struct {
	path   string
	states states // of the pattern, after path and a slash
}

// named lists the file or folder of that very name.
func (w *walker) named(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return w.report(Object{Path: path, Err: linkError(path, err)})
	}
	if info.IsDir() {
		return w.root(path, info)
	}
	return w.file(path, info, false)
}

// root lists a folder, then those that links lead to, then hidden ones.
func (w *walker) root(path string, info fs.FileInfo) error {
	w.entered[idOf(path, info)] = true
	f := folder{path: path}
	if w.pattern != nil {
		f.states = w.pattern.start()
	}
	if err := w.folder(f); err != nil {
		return err
	}
	for len(w.links)+len(w.hidden) > 0 {
		next := &w.links
		if len(w.links) == 0 {
			next = &w.hidden
		}
		f := (*next)[0]
		*next = (*next)[1:]
		info, err := os.Stat(f.path)
		if err != nil {
			if err := w.report(Object{Path: f.path, InFolder: w.pattern == nil, Err: linkError(f.path, err)}); err != nil {
				return err
			}
			continue
		}
		if w.entered[idOf(f.path, info)] {
			continue
		}
		w.entered[idOf(f.path, info)] = true
		if err := w.folder(f); err != nil {
			return err
		}
	}
	return nil
}

// pageNames is how many names of a folder are held at a time, or twice as many
// for a moment. A folder of more is read once for each page.
var pageNames = 1 << 17

func (w *walker) folder(f folder) error {
	after := ""
	for {
		names, err := namesAfter(f.path, after, pageNames)
		if err != nil {
			if err := w.report(Object{Path: f.path, InFolder: w.pattern == nil, Err: localError(f.path, err)}); err != nil {
				return err
			}
		}
		if err := w.names(f, names); err != nil {
			return err
		}
		if err != nil || len(names) < pageNames {
			return nil
		}
		after = names[len(names)-1]
	}
}

// names lists some of the names in a folder.
func (w *walker) names(f folder, names []string) error {
	for _, name := range names {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		path := filepath.Join(f.path, name)
		below := folder{path: path}
		matches, descend := true, true
		if w.pattern != nil {
			after, alive := w.pattern.step(f.states, name)
			if !alive {
				continue
			}
			matches = after[len(w.pattern)]
			below.states, descend = w.pattern.step(after, "/")
		}
		info, err := os.Lstat(path)
		if errors.Is(err, ErrNotExist) {
			continue // gone in the meantime
		}
		isLink := err == nil && info.Mode()&fs.ModeSymlink != 0
		if isLink {
			info, err = os.Stat(path)
		}
		switch {
		case err != nil && (matches || descend && !errors.Is(err, ErrNotExist) && !errors.Is(err, syscall.ELOOP)): // it may be a folder
			err = w.report(Object{Path: path, InFolder: w.pattern == nil, Err: linkError(path, err)})
		case err != nil:
			err = nil
		case info.IsDir() && !descend:
		case info.IsDir() && w.isHidden(path):
			w.hidden = append(w.hidden, below)
		case info.IsDir() && isLink:
			w.links = append(w.links, below)
		case info.IsDir():
			if id := idOf(path, info); !w.entered[id] {
				w.entered[id] = true
				err = w.folder(below)
			}
		case matches:
			err = w.file(path, info, isLink)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) file(path string, info fs.FileInfo, isLink bool) error {
	o := Object{Path: path, Size: info.Size(), Modified: info.ModTime(), Access: accessOf(info), Link: isLink}
	if !info.Mode().IsRegular() {
		o.Err = notRegular(path, info)
	}
	o.InFolder = w.pattern == nil && len(w.entered) > 0
	return w.report(o)
}

func (w *walker) report(o Object) error {
	w.reported = true
	o.Hidden = w.isHidden(o.Path)
	return w.fn(o)
}

func (w *walker) isHidden(path string) bool {
	if w.base != "." {
		path = strings.TrimPrefix(path, w.base)
	}
	return w.pattern.hidden(strings.TrimPrefix(filepath.ToSlash(path), "/"))
}

// namesAfter returns the first count names behind after in a folder, sorted;
// with an error, some of them.
func namesAfter(path, after string, count int) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	last := "" // with count names in hand, the largest that can be one of the first
	first := func() {
		slices.Sort(names)
		if len(names) >= count {
			clear(names[count:])
			names = names[:count]
			last = names[count-1]
		}
	}
	for {
		some, err := f.Readdirnames(1024)
		for _, name := range some {
			if name > after && (last == "" || name < last) {
				names = append(names, name)
			}
		}
		if err != nil {
			first()
			if err == io.EOF {
				err = nil
			}
			return names, err
		}
		if len(names) >= 2*count {
			first()
		}
	}
}

// linkError explains why a name that exists cannot be followed.
func linkError(path string, err error) error {
	if target, e := os.Readlink(path); e == nil && errors.Is(err, ErrNotExist) {
		return fmt.Errorf("store: %s: link to %s, which does not exist: %w", quote(path), quote(target), ErrNotExist)
	}
	return localError(path, err)
}

func notRegular(path string, info fs.FileInfo) error {
	what := "special file"
	switch mode := info.Mode(); {
	case mode.IsDir():
		return fmt.Errorf("store: %s: %w, %w", quote(path), ErrFolder, ErrNotFile)
	case mode&fs.ModeNamedPipe != 0:
		what = "pipe"
	case mode&fs.ModeSocket != 0:
		what = "socket"
	case mode&fs.ModeDevice != 0:
		what = "device"
	case mode&fs.ModeSymlink != 0:
		what = "link"
	}
	return fmt.Errorf("store: %s: is a %s, %w", quote(path), what, ErrNotFile)
}

// unreadable is notRegular, or why a folder cannot be listed: a listing hands on
// one that it could not read.
func unreadable(path string, info fs.FileInfo) error {
	if info.IsDir() {
		if _, err := namesAfter(path, "", 1); err != nil {
			return localError(path, err)
		}
	}
	return notRegular(path, info)
}

func (local) Stat(_ context.Context, uri string) (Object, error) {
	info, err := os.Stat(uri)
	if err != nil {
		return Object{}, localError(uri, err)
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
		return Object{}, localError(uri, err)
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
	before, err := os.Stat(uri)
	if err != nil {
		return nil, localError(uri, err)
	}
	if !before.Mode().IsRegular() { // to open a pipe would wait for its writer
		return nil, unreadable(uri, before)
	}
	if limit > 0 && before.Size() > limit {
		return nil, &TooLarge{uri, before.Size(), limit}
	}
	f, err := open(uri)
	if err != nil {
		return nil, localError(uri, err)
	}
	defer f.Close()
	data := make([]byte, before.Size()+1)
	n, err := io.ReadFull(f, data)
	if err != io.EOF && err != io.ErrUnexpectedEOF && err != nil {
		return nil, localError(uri, err)
	}
	after, err := f.Stat()
	if err != nil {
		return nil, localError(uri, err)
	}
	if int64(n) != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, fmt.Errorf("store: %s: %w", quote(uri), ErrChanged)
	}
	return data[:n:n], nil
}

func (l local) Write(ctx context.Context, uri string, data []byte) error {
	return l.create(ctx, uri, func(f *os.File) error { _, err := f.Write(data); return err })
}

func (l local) Add(ctx context.Context, uri string, data []byte) error {
	if info, err := os.Stat(uri); err == nil && !info.IsDir() {
		content, err := l.Read(ctx, uri, int64(len(data))+1)
		if err := taken(uri, data, content, err); err != nil || len(content) == len(data) {
			return cmp.Or(err, ctx.Err())
		}
	}
	return l.Write(ctx, uri, data)
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
	dir := l.tempDir
	if dir == "" {
		dir = beside
	}
	var own error // of write, which may be that of another file
	content := func(f *os.File) error {
		own = write(f)
		return own
	}
	err := writeBy(ctx, dir, target, content)
	if errors.Is(err, syscall.EXDEV) && dir != beside { // another disk
		err = writeBy(ctx, beside, target, content)
	}
	if errors.Is(err, fs.ErrExist) { // what os.Rename says of a folder
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
	err = write(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return inFolder(filepath.Dir(target), func() error { return rename(temp, target) })
}

const tempSuffix = ".tmp"

// Temporary says whether a local write may have left a file of this name.
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

// Lock locks the file by flock(2), which ends with the process, and writes
// into it who holds it. The file stays, unless its holder removes it: whoever finds
// that the file it locked is no longer the one of that name begins again, or two runs
// would hold a lock each.
func (local) Lock(_ context.Context, uri string) (func() error, error) {
	// Who follows a link writes into a file that is no lock.
	if info, err := os.Lstat(uri); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w; move it away", notRegular(uri, info))
	}
	lock := flock.New(uri, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o666))
	named := func() bool {
		locked, err := lock.Stat()
		there, missing := os.Stat(uri)
		return err == nil && missing == nil && os.SameFile(locked, there)
	}
	const tries = 100 // there are links to nowhere, and may be disks that know no file again
	for try := 1; ; try++ {
		var ok bool
		err := inFolder(filepath.Dir(uri), func() (err error) {
			ok, err = lock.TryLock()
			return err
		})
		switch {
		case try < tries && (errors.Is(err, ErrNotExist) || errors.Is(err, fs.ErrExist)): // its folder went meanwhile
			continue
		case err != nil:
			return nil, FolderError(WriteError(uri, err))
		case !ok:
			return nil, lockedError(uri, holder(uri))
		}
		if try == tries || named() {
			break
		}
		if err := lock.Unlock(); err != nil {
			return nil, WriteError(uri, err)
		}
	}
	hold(uri)
	var once sync.Once
	return func() (err error) {
		once.Do(func() {
			if named() {
				os.Truncate(uri, 0)
			}
			err = lock.Unlock()
		})
		return err
	}, nil
}

// hold writes into the lock at uri who has it, for people alone. The first byte stays
// free: it is what is locked on Windows, where nobody reads or writes it meanwhile.
func hold(uri string) {
	if f, err := os.OpenFile(uri, os.O_WRONLY, 0); err == nil {
		f.Truncate(0)
		f.WriteAt([]byte(me()), 1)
		f.Close()
	}
}

// holder is what hold wrote.
func holder(uri string) string {
	f, err := open(uri)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.NewSectionReader(f, 1, 1000))
	return string(text)
}

// me describes this process for other people's error messages.
func me() string {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return fmt.Sprintf("process %d on %s, since %s", os.Getpid(), host, time.Now().Format(time.RFC3339))
}

func lockedError(uri, holder string) error {
	if holder = strings.TrimSpace(holder); holder == "" || len(holder) > 200 {
		holder = "unknown"
	}
	return fmt.Errorf("store: %s: %w (%s); wait for its end or choose another folder", quote(uri), ErrLocked, quote(holder))
}

func (local) sub(_ context.Context, uri string) (fs.FS, error) {
	root, err := os.OpenRoot(uri) // keeps to the folder, whatever links say
	if err != nil {
		return nil, localError(uri, err)
	}
	return root.FS(), nil
}
