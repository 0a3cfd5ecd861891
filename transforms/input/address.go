package input

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/linnet-ml/linnet/transforms/store"
)

// Absolute makes a local path absolute and cleans it; a gs:// address loses
// its last slash, and GS:// is gs://.
func Absolute(uri string) (string, error) {
	if store.Remote(uri) {
		path := strings.Index(uri, "://") + len("://")
		return strings.ToLower(uri[:path]) + strings.TrimRight(uri[path:], "/"), nil
	}
	whole, err := filepath.Abs(uri)
	if err != nil { // the folder that the program was started in is gone
		return "", fmt.Errorf("input: %s: no working folder: %w; go to one, or name the whole path", uri, err)
	}
	return whole, nil
}

// Name is uri's path below base without .ann, its last element where base is uri,
// and the whole path, less root or scheme, where it is not below base. It never
// leads out of a folder.
func Name(base, uri string) string {
	rel := uri[len(filepath.VolumeName(uri)):]
	if base != "" && under(uri, base) && len(uri) > len(base) {
		rel = uri[len(base):]
	} else if base == uri { // an object of any name, or a folder: which, nobody knows yet
		rel = path.Base(filepath.ToSlash(uri))
	} else if _, after, ok := strings.Cut(uri, "://"); ok {
		rel = after
	}
	rel = strings.TrimSuffix(filepath.ToSlash(rel), ".ann")
	return strings.TrimPrefix(path.Clean("/"+rel), "/")
}

// pattern reports whether arg has wildcards; a local file or folder of that very
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

// resolveLinks is a local folder with its symbolic links resolved, "" where that fails.
func resolveLinks(dir string) string {
	if store.Remote(dir) {
		return ""
	}
	r, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	return r
}

// within reports whether a local dir is folder or lies below it, by whatever names: by a
// link, by another mount of the same disk, in other letters where the disk folds case.
func within(dir, folder string) bool {
	if store.Remote(dir) || store.Remote(folder) {
		return false
	}
	there, err := os.Stat(folder)
	if err != nil {
		return false
	}
	for at := resolveLinks(dir); at != ""; at = filepath.Dir(at) {
		if here, err := os.Stat(at); err == nil && store.Same(here, there) {
			return true
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return false
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

// under reports whether uri is dir or lies below it.
func under(uri, dir string) bool {
	if !strings.HasPrefix(uri, dir) {
		return false
	}
	return len(uri) == len(dir) || os.IsPathSeparator(dir[len(dir)-1]) || uri[len(dir)] == '/' || os.IsPathSeparator(uri[len(dir)])
}
