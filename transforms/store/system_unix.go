//go:build unix

package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

func rename(from, to string) error { return os.Rename(from, to) }

func remove(path string) error { return os.Remove(path) }

func open(path string) (*os.File, error) { return os.Open(path) }

// impossibleName says that the system, of which call failed at path with err, cannot have a
// file of that name: it is too long, on macOS no UTF-8, or has one of :*?"<>| on a disk of
// Windows, such as a USB stick. What a mounted server or a driver beside the system says
// to such a name may be any error, so there the name decides.
func impossibleName(call, path string, err error) bool {
	names := []string{"open", "rename", "mkdir", "stat", "lstat"}
	if errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EILSEQ) {
		return true
	}
	name := filepath.Base(path)
	switch {
	case !slices.Contains(names, call):
		return false
	case errors.Is(err, syscall.EINVAL):
		return true
	case errors.Is(err, syscall.ENOENT) && call != "rename" && call != "mkdir":
		return false // it is not there
	case len(name) > 255:
		return slices.ContainsFunc(refusals, func(e error) bool { return errors.Is(err, e) })
	case call == "rename" || call == "mkdir":
		return (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOENT)) && notOfWindows(name)
	}
	return false
}

func notOfWindows(name string) bool {
	return strings.ContainsAny(name, `:*?"<>|\`) || strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name) || strings.TrimRight(name, ". ") != name
}

// refusals are what sshfs, rclone and mergerfs say to a name that their server or disk finds
// too long.
var refusals = []error{syscall.EBADMSG, syscall.EIO, syscall.EPERM, syscall.ENOENT, syscall.EXDEV}

func cutName(string) bool { return false }

func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

func inUse(error) bool { return false }

func readOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// fileID tells folders apart, by whatever name they are reached.
type fileID struct{ device, inode uint64 }

func idOf(_ string, info fs.FileInfo) fileID {
	s := info.Sys().(*syscall.Stat_t)
	return fileID{uint64(s.Dev), uint64(s.Ino)}
}

func accessOf(info fs.FileInfo) [3]uint32 {
	s := info.Sys().(*syscall.Stat_t)
	return [3]uint32{uint32(s.Mode), s.Uid, s.Gid}
}
