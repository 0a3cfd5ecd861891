//go:build unix

package store

import (
	"io/fs"
	"syscall"
)

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
