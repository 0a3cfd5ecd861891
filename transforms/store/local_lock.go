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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Lock locks the file by flock(2), which ends with the process, and writes
// into it who holds it. The file stays, unless its holder removes it: whoever finds
// that the file it locked is no longer the one of that name begins again, or two runs
// would hold a lock each. A holder whose file went, or is another run's, is told when it
// unlocks.
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
			return nil, lockFailure(uri, err)
		case !ok:
			holder := readHolder(uri)
			if holder == "" && try < tries { // it is about to say so, or lets go
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return nil, lockedError(uri, holder)
		}
		if try == tries || named() {
			break
		}
		if err := lock.Unlock(); err != nil {
			return nil, WriteError(uri, err)
		}
	}
	writeHolder(uri)
	holder := readHolder(uri)
	return sync.OnceValue(func() error {
		var lost error
		if named() {
			os.Truncate(uri, 0)
		} else if readHolder(uri) != holder { // a disk may know no file again
			lost = lostError(uri)
		}
		return cmp.Or(lost, lock.Unlock())
	}), nil
}

// lockFailure is err, of the lock at uri, with what to do.
func lockFailure(uri string, err error) error {
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK) {
		return fmt.Errorf("%w; this disk has no file locks: mount it with them (-o flock), or choose a folder on another disk", localError(uri, err))
	}
	return FolderError(WriteError(uri, err))
}

// writeHolder writes into the lock at uri who has it, for people alone; the time of the
// lock is from then on that of its taking. The first byte stays
// free: it is what is locked on Windows, where nobody reads or writes it meanwhile.
func writeHolder(uri string) {
	if f, err := os.OpenFile(uri, os.O_WRONLY, 0); err == nil {
		f.Truncate(0)
		f.WriteAt([]byte(thisProcess()), 1)
		f.Close()
	}
}

// readHolder is what writeHolder wrote.
func readHolder(uri string) string {
	f, err := open(uri)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.NewSectionReader(f, 1, 1000))
	return string(text)
}

// thisProcess describes this process for other people's error messages.
func thisProcess() string {
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
