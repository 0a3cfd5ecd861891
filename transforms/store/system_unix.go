//go:build unix

package store

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

func rename(from, to string) error { return os.Rename(from, to) }

func remove(path string) error { return os.Remove(path) }

func open(path string) (*os.File, error) { return os.Open(path) }

// impossibleName says that the system, of which call failed with err, cannot have a file
// of that name: it is too long, on macOS no UTF-8, or has one of :*?"<>| on a disk of
// Windows, such as a USB stick.
func impossibleName(call string, err error) bool {
	return errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EILSEQ) ||
		errors.Is(err, syscall.EINVAL) && slices.Contains([]string{"open", "rename", "mkdir", "stat", "lstat"}, call)
}

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
