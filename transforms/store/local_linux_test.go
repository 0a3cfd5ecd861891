package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// asUser makes the test's thread one whom permissions stop, also where root
// runs it.
func asUser(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	runtime.LockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Skip("cannot become another user: ", err)
	}
	t.Cleanup(func() {
		syscall.Setfsuid(0)
		runtime.UnlockOSThread()
	})
}

func TestLocalPermissions(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, "a.txt", "closed/b.txt", "secret.txt", "z.txt", "readonly/")
	for name, mode := range map[string]fs.FileMode{"closed": 0, "secret.txt": 0, "readonly": 0o555} {
		if err := os.Chmod(dir+"/"+name, mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(dir+"/"+name, 0o777) })
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	asUser(t)
	s := localStore(t)
	for _, uri := range []string{dir, dir + "/**"} {
		got, objects := list(t, s, uri)
		wantPaths(t, uri, got, in(dir, "a.txt", "closed", "secret.txt", "z.txt"))
		wantError(t, objects[1].Err, fs.ErrPermission, dir+"/closed: permission denied; allow reading it")
	}
	got, objects := list(t, s, dir+"/closed")
	wantPaths(t, "closed folder", got, []string{dir + "/closed"})
	wantError(t, objects[0].Err, fs.ErrPermission)
	_, err := s.Read(t.Context(), dir+"/secret.txt", 0)
	wantError(t, err, fs.ErrPermission, dir+"/secret.txt: permission denied; allow reading it")
	_, err = s.Read(t.Context(), dir+"/closed", 0) // what a listing hands on
	wantError(t, err, fs.ErrPermission, dir+"/closed: permission denied; allow reading it")
	if _, err := Sub(t.Context(), dir+"/closed"); err == nil || err.Error() != "store: "+dir+"/closed: permission denied" {
		t.Errorf("got %v, want no remedy: whoever asks for a model has one", err)
	}
	wantError(t, s.List(t.Context(), dir+"/closed/b.txt", nil), fs.ErrPermission)
	wantError(t, s.List(t.Context(), dir+"/closed/x/*.txt", nil), fs.ErrPermission)
	wantError(t, s.Write(t.Context(), dir+"/readonly/x/y.txt", nil), fs.ErrPermission, dir+"/readonly/x/y.txt: permission denied; choose a folder that can be written to")
	wantError(t, FolderError(s.Write(t.Context(), dir+"/secret.txt/x/y.txt", nil)), syscall.ENOTDIR, dir+"/secret.txt/x/y.txt: not a directory; choose a folder that can be written to")
	_, err = s.Lock(t.Context(), dir+"/readonly/_lock")
	wantError(t, err, fs.ErrPermission, dir+"/readonly/_lock: permission denied; choose a folder that can be written to")
	wantError(t, s.Write(t.Context(), "/proc/x/y.txt", nil), ErrNotExist, "/proc/x/y.txt: no such file or directory; choose a folder that can be written to")
}

// TestLocalManyFiles opens files until the process may have no more.
func TestLocalManyFiles(t *testing.T) {
	dir := t.TempDir()
	s := localStore(t)
	mustWrite(t, s, dir+"/a.txt", "a")
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 40, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	for {
		f, err := os.Open(dir)
		if err != nil {
			break
		}
		defer f.Close()
	}
	_, err := s.Read(t.Context(), dir+"/a.txt", 0)
	wantError(t, err, syscall.EMFILE, dir+"/a.txt: too many open files; raise ulimit -n")
	wantError(t, s.Write(t.Context(), dir+"/b.txt", nil), syscall.EMFILE, dir+"/b.txt: too many open files; raise ulimit -n")
	_, added := s.Add(t.Context(), dir+"/a.txt", []byte("b")) // what stands there is unknown, and no stranger's
	wantError(t, added, syscall.EMFILE, dir+"/a.txt: too many open files; raise ulimit -n")
	if again := localError("list", err); strings.Count(again.Error(), "ulimit") != 1 {
		t.Errorf("it is said twice what to do: %v", again)
	}
}

// TestLocalNameOfWindows has what disks of Windows and mounted servers say to a name with a
// colon or of more than 255 bytes, which only a mount could show, and the same numbers where
// they are no word about the name.
func TestLocalNameOfWindows(t *testing.T) {
	long := strings.Repeat("a", 256)
	for _, err := range []error{
		&fs.PathError{Op: "open", Path: "a:b", Err: syscall.EINVAL}, &fs.PathError{Op: "mkdir", Path: "a:b", Err: syscall.EINVAL},
		&os.LinkError{Op: "rename", Old: "x", New: "a:b", Err: syscall.EINVAL},
		&os.LinkError{Op: "rename", Old: "x", New: "a:b", Err: syscall.ENOENT}, // exfat-fuse
		&os.LinkError{Op: "rename", Old: "x", New: "dot.", Err: syscall.EPERM}, // fusefat, sshfs
		&os.LinkError{Op: "rename", Old: "x", New: "a\nb", Err: syscall.ENOENT}, &os.LinkError{Op: "rename", Old: "x", New: "a\xff", Err: syscall.EPERM},
		&fs.PathError{Op: "mkdir", Path: "a:b", Err: syscall.EPERM},          // fusefat
		&fs.PathError{Op: "stat", Path: "x/" + long, Err: syscall.EBADMSG},   // sshfs
		&fs.PathError{Op: "stat", Path: "x/" + long, Err: syscall.EIO},       // rclone
		&fs.PathError{Op: "mkdir", Path: "x/" + long, Err: syscall.EIO},      // rclone
		&os.LinkError{Op: "rename", Old: "x", New: long, Err: syscall.EXDEV}, // mergerfs
		&os.LinkError{Op: "rename", Old: "x", New: long, Err: syscall.EPERM}, // sshfs
	} {
		got := WriteError("the/place", err)
		wantError(t, got, ErrName, "the/place: impossible name: ")
		if strings.Contains(got.Error(), "choose") {
			t.Errorf("%v: another folder would not take it either", got)
		}
	}
	for _, err := range []error{
		&fs.PathError{Op: "read", Path: "a", Err: syscall.EINVAL},
		&fs.PathError{Op: "open", Path: "a:b", Err: syscall.ENOENT},
		&fs.PathError{Op: "stat", Path: long, Err: syscall.ENOENT},
		&os.LinkError{Op: "rename", Old: "x:", New: "a", Err: syscall.EPERM},
		&os.LinkError{Op: "rename", Old: "x", New: "a:b", Err: syscall.EIO},
		&os.LinkError{Op: "rename", Old: "x", New: "a:b/x", Err: syscall.ENOENT},
		&os.LinkError{Op: "rename", Old: "x", New: long, Err: syscall.ENOSPC},
		&fs.PathError{Op: "mkdir", Path: long, Err: syscall.EACCES},
	} {
		if err := localError("a", err); errors.Is(err, ErrName) {
			t.Error(err)
		}
	}
}

// TestLocalMountedTwice has one folder at two places, without a link.
func TestLocalMountedTwice(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, "a/1.txt", "b/2.txt")
	if err := syscall.Mount(dir+"/a", dir+"/b", "", syscall.MS_BIND, ""); err != nil {
		t.Skip("needs the right to mount: ", err)
	}
	defer syscall.Unmount(dir+"/b", 0)
	got, _ := list(t, local{}, dir)
	wantPaths(t, "a folder that is mounted twice", got, in(dir, "a/1.txt"))
}

// TestLocalFullDisk writes to a disk of 64 KiB, and across disks.
func TestLocalFullDisk(t *testing.T) {
	dir := t.TempDir()
	small := dir + "/small"
	files(t, dir, "small/")
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("needs the right to mount a small disk: ", err)
	}
	defer syscall.Unmount(small, 0)
	for _, temp := range []string{"", small + "/_tmp", dir + "/_tmp"} {
		s := local{temp}
		uri := small + "/x.txt"
		mustWrite(t, s, uri, "small")
		err := s.Write(t.Context(), uri, make([]byte, 1<<20))
		wantError(t, err, syscall.ENOSPC, uri+": no space left on device; free some space")
		wantContent(t, s, uri, "small")
		got, _ := list(t, s, small)
		wantPaths(t, "temporary folder "+temp, got, []string{uri})
	}
}
