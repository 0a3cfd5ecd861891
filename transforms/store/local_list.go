package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func (local) List(ctx context.Context, uri string, fn func(Object) error) error {
	if uri == "" {
		return errors.New("store: the path is empty; give a file, a folder or a pattern")
	}
	path := filepath.Clean(uri)
	w := walker{ctx: ctx, base: path, fn: fn, entered: make(map[folderID]*states)}
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return w.named(path)
	case !hasMeta(path) || os.IsPathSeparator(uri[len(uri)-1]):
		return readError(uri, err)
	}
	base, rest := literalHead(filepath.ToSlash(path))
	w.base, w.pattern = base, parsePattern(rest)
	info, err := os.Stat(base)
	if err != nil && !errors.Is(err, ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) { // the last of a path below a file
		return readError(base, err)
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
	return cmp.Or(base, "."), strings.Join(names, "/")
}

// walker lists one uri.
type walker struct {
	ctx      context.Context
	base     string // where it began
	fn       func(Object) error
	pattern  pattern              // nil: everything
	entered  map[folderID]*states // those of the pattern; nil without one
	common   *states              // those of the last folder that had none yet
	links    []folder             // to folders, for the end
	hidden   []folder             // for the very end: what else leads to them is no less to be read
	reported bool
}

type folder struct {
	path   string
	states states // of the pattern, after path and a slash
}

// folderID tells folders apart as Same does.
type folderID struct {
	fileID
	size, time int64
}

// enter reports whether a folder is entered for the first time: links lead to some again,
// and so do mounts, and links that a server follows. What a pattern matches below it may
// differ by the way there: then it is entered again, in the states that are new.
func (w *walker) enter(f *folder, info fs.FileInfo) bool {
	id := folderID{idOf(f.path, info), info.Size(), info.ModTime().UnixNano()}
	before, again := w.entered[id]
	switch {
	case w.pattern == nil:
		w.entered[id] = nil
		return !again
	case !again:
		if w.common == nil || !slices.Equal(*w.common, f.states) {
			all := f.states
			w.common = &all
		}
		w.entered[id] = w.common
		return true
	}
	fresh, all := make(states, len(f.states)), slices.Clone(*before)
	for i, on := range f.states {
		fresh[i] = on && !all[i]
		all[i] = on || all[i]
	}
	if !slices.Contains(fresh, true) {
		return false
	}
	f.states, w.entered[id] = fresh, &all
	return true
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
	f := folder{path: path}
	if w.pattern != nil {
		f.states = w.pattern.start()
	}
	w.enter(&f, info)
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
		if !w.enter(&f, info) {
			continue
		}
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
			if err := w.report(Object{Path: f.path, InFolder: w.pattern == nil, Err: readError(f.path, err)}); err != nil {
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
		if errors.Is(err, ErrNotExist) && !cutName(name) {
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
			if w.enter(&below, info) {
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
	return readError(path, err)
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
			return readError(path, err)
		}
	}
	return notRegular(path, info)
}
