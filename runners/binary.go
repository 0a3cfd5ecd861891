package runners

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
)

// workerBinary sets --worker_binary where the command line does not. Workers that run
// the program in its place need none: they get an empty file in dir. Containers, and
// Dataflow's machines, get this very program where it suits them: statically linked, for
// linux on amd64. For others it is built once more in dir; Beam would compile the
// package whose goroutine starts the job, which is no program's.
func workerBinary(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "worker")
	switch env := strings.ToLower(*jobopts.EnvironmentType); {
	case *jobopts.WorkerBinary != "" || env == "loopback" || DryRun():
		return nil
	case env == "process" || env == "external":
		*jobopts.WorkerBinary = file
		return os.WriteFile(file, nil, 0o666)
	}
	if self, err := os.Executable(); err == nil && runtime.GOOS == "linux" && suitsWorkers(self) {
		*jobopts.WorkerBinary = self
		return nil
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("runners: which package this program is built from is not known; name a build of it with --worker_binary")
	}
	*jobopts.WorkerBinary = file
	return buildWorker(ctx, file, info.Path)
}

// suitsWorkers reports whether a file is a program without libraries for amd64. For which
// system is not to be seen in it.
func suitsWorkers(file string) bool {
	program, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	return err == nil && len(libraries) == 0 && program.Machine == elf.EM_X86_64
}

// buildWorker builds a package of the module in the current folder for workers.
func buildWorker(ctx context.Context, file, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, pkg)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil && !suitsWorkers(file) {
		err = errors.New("it is no program")
	}
	if err != nil {
		why, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("runners: workers need this program without libraries, for linux on amd64, and it cannot be built here (%s): build it where its sources are with CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -o worker %s, and add --worker_binary=worker", cmp.Or(why, err.Error()), pkg)
	}
	return nil
}
