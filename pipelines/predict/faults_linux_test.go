package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pipeAt makes a pipe.
func pipeAt(path string) error { return syscall.Mkfifo(path, 0o666) }

// TestPipeForOutput has somebody's pipe in the place of an output: its document is
// rejected, whatever its record says, and no other.
func TestPipeForOutput(t *testing.T) {
	in, out := manyDocuments(t, 3), filepath.Join(t.TempDir(), "out")
	run := func(status int, says string, flags ...string) {
		t.Helper()
		stdout, stderr, got := predict(t, append(flags, "--input="+in, "--output="+out)...)
		if got != status || !strings.Contains(stdout, says) {
			t.Fatalf("%v: status %d, want %d, %q in %s%s", flags, got, status, says, stdout, stderr)
		}
	}
	run(0, "3 documents")
	path := filepath.Join(out, "0001.txt.ann")
	if err := errors.Join(os.Remove(path), pipeAt(path)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		plan, run string
		flags     []string
	}{
		{"2 documents done before", "2 documents done before", nil},
		{"2 documents to label", "2 documents, ", []string{"--label_set=full"}},
	} {
		run(0, c.plan, append(c.flags, "--plan")...)
		run(0, "0001.txt.ann: is a pipe, not a file; move it away", append(c.flags, "--plan")...)
		run(3, c.run, c.flags...)
		run(3, "1 document rejected", c.flags...)
		if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			t.Fatalf("%v: the pipe is gone: %v", c.flags, err)
		}
	}
	run(0, "3 documents", "--force")
}

// smallDisk mounts a disk of so many KiB.
func smallDisk(t *testing.T, kib int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
		t.Skip("needs the right to mount a small disk, as root has: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, 0) })
	return dir
}

// TestFullDisk fills the output's disk at several sizes, from one that holds
// hardly a file on, and then makes it larger.
func TestFullDisk(t *testing.T) {
	d := disturb(t, manyDocuments(t, 100), "--format=yedda,csv")
	for _, kib := range []int{4, 64, 256, 512, 1024} {
		for _, runner := range []string{"direct", "prism"} {
			disk := smallDisk(t, kib)
			out := filepath.Join(disk, "out")
			said := d.run(out, 1, "--runner="+runner)
			if !strings.Contains(said, "no space left on device") || !strings.Contains(said, out) || !strings.Contains(said, "free some") {
				t.Errorf("%d KiB, %s: %s", kib, runner, said)
			}
			d.whole(out)
			if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
				t.Fatal(err)
			}
			d.finish(out)
		}
	}
}

// TestUntoldPlan prints a plan into a file on a full disk.
func TestUntoldPlan(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	cmd := command("--plan", "--output="+filepath.Join(t.TempDir(), "out"), "--input="+filepath.Join("..", "..", "testdata", "sample"))
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != 1 || !strings.Contains(stderr.String(), "no space left on device") {
		t.Errorf("exit status %d, %q; want 1 and that there is no space", got, &stderr)
	}
}

// TestFileLimit has the system refuse any file of more than 8 KiB, which needs
// no right to mount.
func TestFileLimit(t *testing.T) {
	d := disturb(t, manyDocuments(t, 20), "--format=yedda,csv")
	out := filepath.Join(t.TempDir(), "out")
	cmd := d.command(out, "--verbosity=0")
	limited := exec.Command("bash", append([]string{"-c", `ulimit -f 2; exec "$0" "$@"`}, cmd.Args...)...)
	var stderr bytes.Buffer
	limited.Stderr = &stderr
	limited.Run()
	if got := limited.ProcessState.ExitCode(); got != 1 || !strings.Contains(stderr.String(), "file too large; raise ulimit -f, or ") || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("exit status %d, %q; want 1 and one line", got, &stderr)
	}
	d.whole(out)
	d.finish(out)
}

// TestReadOnly has an output folder that may not be written to, from the
// beginning or from some moment on.
func TestReadOnly(t *testing.T) {
	d := disturb(t, manyDocuments(t, 400))
	disk := smallDisk(t, 64<<10)
	out := filepath.Join(disk, "out")
	readOnly := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT|flags, "size=64m"); err != nil {
			t.Fatal(err)
		}
	}
	readOnly(syscall.MS_RDONLY)
	for _, runner := range []string{"direct", "prism"} {
		if said := d.run(out, 1, "--runner="+runner); !strings.Contains(said, out) || !strings.Contains(said, "read-only file system") {
			t.Errorf("%s: %s", runner, said)
		}
	}
	readOnly(0)
	d.finish(out)
	readOnly(syscall.MS_RDONLY)
	if said := d.run(out, 1, "--force"); !strings.Contains(said, "read-only file system") {
		t.Errorf("done, and read-only: %s", said)
	}
	readOnly(0)
	d.whole(out)
	d.finish(out)

	// A folder of someone else's.
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o555); err != nil {
		t.Fatal(err)
	}
	cmd := d.command(filepath.Join(closed, "out"), "--verbosity=0")
	if os.Getuid() == 0 {
		program := filepath.Join(t.TempDir(), "predict") // a copy: that user may not get to where it lies
		binary, err := exec.LookPath(*faultBinary)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(binary)
		if err := cmp.Or(err, os.WriteFile(program, data, 0o755)); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{d.in, filepath.Dir(d.in), closed, filepath.Dir(closed), filepath.Dir(program)} {
			os.Chmod(dir, 0o755)
		}
		cmd = exec.Command("setpriv", append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", program}, cmd.Args[1:]...)...)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != 1 || !strings.Contains(stderr.String(), "permission denied") || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("exit status %d, %q; want 1 and one line", got, &stderr)
	}
}

// TestLimits has what no run should stumble over in one folder: a document of
// 2 GB, one line of a megabyte and more, pipes, loops and dangling links.
func TestLimits(t *testing.T) {
	in := manyDocuments(t, 3)
	path := func(name string) string { return filepath.Join(in, name) }
	err := errors.Join(
		os.WriteFile(path("large.txt"), nil, 0o666), os.Truncate(path("large.txt"), 2<<30),
		os.WriteFile(path("line.txt"), bytes.Repeat([]byte("Agaricus campestris "), *faultLine/20), 0o666),
		os.WriteFile(path("breaks.txt"), bytes.Repeat([]byte("\n"), *faultLine), 0o666),
		os.WriteFile(path("empty.txt"), nil, 0o666),
		pipeAt(path("pipe.txt")),
		os.Symlink("nowhere.txt", path("dangling.txt")), os.Symlink("loop.txt", path("loop.txt")),
		os.Mkdir(path("sub"), 0o777), os.Symlink("..", path("sub/up")), os.Symlink(".", path("here")),
		os.Symlink("/dev/zero", path("zero.txt")), os.Symlink("nowhere", path("folder")), pipeAt(path("pipe")),
	)
	if err != nil {
		t.Fatal(err)
	}
	// A folder whose path is longer than the system takes at once, which may hold
	// documents.
	t.Chdir(in)
	for range 25 {
		name := strings.Repeat("n", 200)
		if err := errors.Join(os.Mkdir(name, 0o777), os.Chdir(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile("deep.txt", []byte("Agaricus\n"), 0o666), os.Chdir(in)); err != nil {
		t.Fatal(err)
	}
	for _, runner := range []string{"direct", "prism"} {
		out := filepath.Join(t.TempDir(), "out")
		cmd := command("--runner="+runner, "--input="+in, "--output="+out, "--memory_limit=512MiB")
		text, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(string(text), "6 documents, ") || !strings.Contains(string(text), "7 documents rejected") {
			t.Fatalf("%s: %v: %s; want 6 documents labelled and 7 rejected", runner, err, text)
		}
		if peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10; peak > 1<<10 {
			t.Errorf("%s: %d MiB of memory", runner, peak)
		}
		data, err := os.ReadFile(filepath.Join(out, "_rejected.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"large.txt": "2147483648 bytes, the limit is 67108864: too large; raise --max_document_bytes", "pipe.txt": "is a pipe, not a file",
			"zero.txt": "is a device, not a file", "dangling.txt": "a link to nothing", "loop.txt": "too many levels of symbolic links", "folder": "a link to nothing",
			strings.Repeat("n", 200) + "/": "file name too long; rename it, or move it to a folder of a shorter path",
		} {
			found := false
			for line := range strings.Lines(string(data)) {
				found = found || strings.Contains(line, `"document":"`+name) && strings.Contains(line, want)
			}
			if !found {
				t.Errorf("%s: no line of %s with %q in %s", runner, name, want, data)
			}
		}
	}
}

// TestManyFiles has a great many documents in one folder.
func TestManyFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes seconds")
	}
	in, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	for i := range *faultFiles {
		if err := os.WriteFile(filepath.Join(in, fmt.Sprintf("%07d.txt", i)), []byte("Agaricus\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"documents, ", "nothing to do"} {
		cmd := command("--input="+in, "--output="+out, "--memory_limit=256MiB")
		begin := time.Now()
		text, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(text), what) {
			t.Fatalf("%v: %s", err, text)
		}
		peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
		t.Logf("%d files, %s: %v, %v of processor time, %d MiB", *faultFiles, strings.TrimSuffix(what, ", "), time.Since(begin).Round(time.Second),
			(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Round(time.Second), peak)
	}
	if got := len(manifest(t, out)); got != *faultFiles {
		t.Errorf("the manifest has %d lines, want %d", got, *faultFiles)
	}
}
