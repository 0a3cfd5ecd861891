package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/windows"
)

// rename waits a little where the target is open in another program, such as a
// virus scanner or an indexer: Windows then refuses what Unix allows.
func rename(from, to string) error {
	return patiently(time.Second, func() error { return os.Rename(from, to) }, windows.ERROR_SHARING_VIOLATION, windows.ERROR_ACCESS_DENIED)
}

// remove waits so long, too, for readers.
func remove(path string) error {
	return patiently(time.Second, func() error { return os.Remove(path) }, windows.ERROR_SHARING_VIOLATION)
}

// open waits a little where the file is just being replaced.
func open(path string) (f *os.File, err error) {
	err = patiently(100*time.Millisecond, func() (err error) {
		f, err = os.Open(path)
		return err
	}, windows.ERROR_SHARING_VIOLATION)
	return f, err
}

// patiently tries again after such errors, until a pause would be longer than longest.
func patiently(longest time.Duration, try func() error, after ...error) error {
	for pause := time.Millisecond; ; pause *= 2 {
		err := try()
		if pause > longest || !slices.ContainsFunc(after, func(e error) bool { return errors.Is(err, e) }) {
			return err
		}
		time.Sleep(pause)
	}
}

// impossibleName says that the system cannot have a file of that name: it has
// one of :*?"<>|, say, or is too long.
func impossibleName(_, _ string, err error) bool {
	return errors.Is(err, windows.ERROR_INVALID_NAME) || errors.Is(err, windows.ERROR_FILENAME_EXCED_RANGE) || errors.Is(err, windows.ERROR_DIRECTORY)
}

// cutName says that path ends in what Windows takes off before it looks for a file. Other
// systems write such names to disks that Windows reads, too.
func cutName(path string) bool { return strings.TrimRight(path, ". ") != path }

func diskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// inUse says that a file cannot be written over or removed as another program has it open,
// or, of which Windows says the same when it is renamed over, as it is read-only.
func inUse(err error) bool {
	_, renamed := errors.AsType[*os.LinkError](err)
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || renamed && errors.Is(err, windows.ERROR_ACCESS_DENIED)
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
