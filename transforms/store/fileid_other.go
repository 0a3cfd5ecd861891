//go:build !unix

package store

import (
	"io/fs"
	"path/filepath"
)

// fileID tells folders apart, by whatever name they are reached.
type fileID string

func idOf(path string, _ fs.FileInfo) fileID {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return fileID(path)
}

func accessOf(info fs.FileInfo) [3]uint32 { return [3]uint32{uint32(info.Mode())} }
