//go:build cuda && cgo

package gpuinit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// leases is the folder of the machine's lock files: processes in one container
// share it, of whatever user. It is found before a program gives itself another
// TMPDIR, as package runners does while a pipeline runs.
var leases = filepath.Join(os.TempDir(), "linnet-gpu")

const (
	pollInterval = 100 * time.Millisecond // between two looks at a lock
	queueTimeout = 2 * time.Second        // how long others may need to take their leases
)

// lease takes devices for this process, those first that the fewest other
// processes have, and at most o.Devices. A device has o.WorkersPerGPU slots, a
// lock file each in dir. Only who holds the file next.lock may look for one; with
// o.Wait it keeps that until a slot is free, so that nobody overtakes it. The
// kernel frees the locks of a process that dies.
func lease(ctx context.Context, dir string, devices []Device, o Options, logf func(int, string, ...any)) ([]Device, func() error, error) {
	slots := max(1, o.WorkersPerGPU)
	busy := &Error{Kind: ErrBusy, What: fmt.Sprintf("other workers hold %s (--workers_per_gpu=%d)", gpus(len(devices)), slots),
		Remedy: "wait for them, or raise --workers_per_gpu where memory allows"}

	_ = os.MkdirAll(filepath.Dir(dir), 0o777) // or dir cannot be made, which tells
	if os.Mkdir(dir, 0o777) == nil {
		_ = os.Chmod(dir, 0o777|os.ModeSticky) // for other users; what is there may be a stranger's link
	} else if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, nil, fmt.Errorf("gpuinit: %w; TMPDIR names another place for the locks", err)
	}
	next := lockFile(filepath.Join(dir, "next.lock"))
	defer next.Close()
	wait, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	ok, err := next.TryLockContext(wait, pollInterval)
	say := sync.OnceFunc(func() { logf(1, "waiting for a GPU: %s", busy.What) })
	if !ok {
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return nil, nil, fmt.Errorf("gpuinit: %w", err)
		case !o.Wait:
			return nil, nil, busy // somebody waits already
		}
		say()
		if _, err := next.TryLockContext(ctx, pollInterval); err != nil {
			return nil, nil, cmp.Or(context.Cause(ctx), err)
		}
	}
	for {
		taken, locks, err := take(dir, devices, slots, o.Devices)
		if err != nil {
			return nil, nil, err
		}
		if len(taken) > 0 {
			return taken, func() error { return closeAll(locks) }, nil
		}
		if !o.Wait {
			return nil, nil, busy
		}
		say()
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}

// take locks a slot of each device that has one free, of at most most devices
// (0: all), those first that the fewest hold. CUDA gives a process one MIG
// instance and nothing beside it.
func take(dir string, devices []Device, slots, most int) (taken []Device, locks []*flock.Flock, err error) {
	type free struct {
		device Device
		lock   *flock.Flock
		held   int
	}
	var found []free
	defer func() {
		for _, f := range found {
			if !slices.Contains(locks, f.lock) {
				err = errors.Join(err, f.lock.Close())
			}
		}
	}()
	for _, d := range devices {
		f := free{device: d}
		for slot := range slots {
			lock := lockFile(filepath.Join(dir, fmt.Sprintf("%s.%d.lock", strings.ReplaceAll(d.UUID, "/", "-"), slot)))
			ok, err := lock.TryLock()
			if err != nil {
				if f.lock != nil {
					f.lock.Close()
				}
				return nil, nil, fmt.Errorf("gpuinit: %w", err)
			}
			switch {
			case !ok:
				f.held++
				lock.Close()
			case f.lock == nil:
				f.lock = lock
			default:
				lock.Close()
			}
		}
		if f.lock != nil {
			found = append(found, f)
		}
	}
	slices.SortStableFunc(found, func(a, b free) int { return a.held - b.held })
	for _, f := range found {
		if most > 0 && len(taken) == most || len(taken) > 0 && (f.device.MIG || taken[0].MIG) {
			break
		}
		taken, locks = append(taken, f.device), append(locks, f.lock)
	}
	return taken, locks, nil
}

// lockFile is the lock of that path. The kernel may refuse to open for creation
// what another user made.
func lockFile(path string) *flock.Flock {
	mode := os.O_RDONLY | syscall.O_NOFOLLOW
	if _, err := os.Lstat(path); err != nil {
		mode |= os.O_CREATE
		if f, err := os.OpenFile(path, mode|os.O_EXCL, 0o644); err == nil {
			_ = f.Chmod(0o644) // for other users, whatever the umask
			f.Close()
		}
	}
	return flock.New(path, flock.SetFlag(mode), flock.SetPermissions(0o644))
}

func closeAll(locks []*flock.Flock) (err error) {
	for _, l := range locks {
		err = errors.Join(err, l.Close())
	}
	return err
}

func gpus(n int) string {
	if n == 1 {
		return "the GPU"
	}
	return fmt.Sprintf("the %d GPUs", n)
}
