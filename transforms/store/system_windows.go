package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// rename waits a little where the target is open in another program, such as a
// virus scanner or an indexer: Windows then refuses what Unix allows.
func rename(from, to string) (err error) {
	for pause := time.Millisecond; ; pause *= 2 {
		err = os.Rename(from, to)
		if !errors.Is(err, windows.ERROR_SHARING_VIOLATION) && !errors.Is(err, windows.ERROR_ACCESS_DENIED) || pause > time.Second {
			return err
		}
		time.Sleep(pause)
	}
}

// impossibleName says that the system cannot have a file of that name: it has
// one of :*?"<>|, say, or is too long.
func impossibleName(err error) bool {
	return errors.Is(err, windows.ERROR_INVALID_NAME) || errors.Is(err, windows.ERROR_FILENAME_EXCED_RANGE) || errors.Is(err, windows.ERROR_DIRECTORY)
}

func diskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

func readOnly(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }

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
