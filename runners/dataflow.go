package runners

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/gcpopts"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/dataflow/dataflowlib"
	"google.golang.org/api/dataflow/v1b3"
)

// workerGPU are the flags that put a GPU into each worker.
var workerGPU = struct {
	count int
	kind  string
}{kind: defaultGPU}

const defaultGPU = "nvidia-l4"

// defineGPU adds --worker_gpu and --worker_gpu_type to fs.
func defineGPU(fs *flag.FlagSet) {
	fs.IntVar(&workerGPU.count, "worker_gpu", 0, "`number` of GPUs in each Dataflow worker; fills in machine type, driver, image and worker binary where no flag does")
	fs.StringVar(&workerGPU.kind, "worker_gpu_type", defaultGPU, "`type` of these GPUs, as Compute Engine calls it")
}

// WorkerGPUs is the number of GPUs that the flags ask for in each worker.
func WorkerGPUs() int { return workerGPU.count }

// ProcessGPUs is how many GPUs a worker process takes at most; 0 means all that no
// other holds. Elsewhere than in this process others take the rest, but for
// Dataflow, where a worker is one process.
func ProcessGPUs() int {
	if Local() {
		return 0
	}
	return max(1, workerGPU.count)
}

// gpuMachines are the machine types of Compute Engine that carry a GPU, by its
// type and by how many there are in one machine; the first is taken where none
// is named. A type that ends in * stands for all that begin so. Source: the
// documentation of Compute Engine's GPU machine types, 2026-11.
var gpuMachines = map[string]map[int][]string{
	"nvidia-l4": {
		1: {"g2-standard-8", "g2-standard-4", "g2-standard-12", "g2-standard-16", "g2-standard-32", "g2-custom-*"},
		2: {"g2-standard-24", "g2-custom-*"},
		4: {"g2-standard-48", "g2-custom-*"},
		8: {"g2-standard-96", "g2-custom-*"},
	},
	"nvidia-tesla-t4":   {1: {"n1-standard-8", "n1-*"}, 2: {"n1-standard-16", "n1-*"}, 4: {"n1-standard-32", "n1-*"}},
	"nvidia-tesla-p4":   {1: {"n1-standard-8", "n1-*"}, 2: {"n1-standard-16", "n1-*"}, 4: {"n1-standard-32", "n1-*"}},
	"nvidia-tesla-p100": {1: {"n1-standard-8", "n1-*"}, 2: {"n1-standard-16", "n1-*"}, 4: {"n1-standard-32", "n1-*"}},
	"nvidia-tesla-v100": {1: {"n1-standard-8", "n1-*"}, 2: {"n1-standard-16", "n1-*"}, 4: {"n1-standard-32", "n1-*"}, 8: {"n1-standard-64", "n1-*"}},
	"nvidia-tesla-a100": {1: {"a2-highgpu-1g"}, 2: {"a2-highgpu-2g"}, 4: {"a2-highgpu-4g"}, 8: {"a2-highgpu-8g"}, 16: {"a2-megagpu-16g"}},
	"nvidia-a100-80gb":  {1: {"a2-ultragpu-1g"}, 2: {"a2-ultragpu-2g"}, 4: {"a2-ultragpu-4g"}, 8: {"a2-ultragpu-8g"}},
	"nvidia-h100-80gb":  {1: {"a3-highgpu-1g"}, 2: {"a3-highgpu-2g"}, 4: {"a3-highgpu-4g"}, 8: {"a3-highgpu-8g"}},
}

// fillGPU checks --worker_gpu against the other flags of Dataflow and gives
// those that were not set the values that a worker with GPUs needs. It looks
// for no GPU on this machine.
func fillGPU() error {
	count, kind := workerGPU.count, workerGPU.kind
	switch {
	case count < 0:
		return fmt.Errorf("runners: --worker_gpu=%d: it must be 0 or more", count)
	case count == 0 && kind != defaultGPU:
		return errors.New("runners: --worker_gpu_type needs --worker_gpu=1 or more")
	case count == 0:
		return nil
	}
	counts, ok := gpuMachines[kind]
	if !ok {
		return fmt.Errorf("runners: --worker_gpu_type=%s is not known; there are %s", kind, strings.Join(slices.Sorted(maps.Keys(gpuMachines)), ", "))
	}
	machines, ok := counts[count]
	if !ok {
		return fmt.Errorf("runners: --worker_gpu=%d: no machine carries so many %s; it must be one of %v", count, kind, slices.Sorted(maps.Keys(counts)))
	}
	machine := cmp.Or(value("worker_machine_type"), value("machine_type"))
	if machine == "" {
		machine = machines[0]
		fill("worker_machine_type", machine)
	}
	if !slices.ContainsFunc(machines, func(m string) bool { ok, _ := path.Match(m, machine); return ok }) {
		return fmt.Errorf("runners: --worker_machine_type=%s cannot carry %d %s; use %s", machine, count, kind, strings.Join(machines, ", "))
	}
	if value("flexrs_goal") == "FLEXRS_COST_OPTIMIZED" {
		return errors.New("runners: --flexrs_goal=FLEXRS_COST_OPTIMIZED: Dataflow's spot workers carry no GPU; leave out --flexrs_goal or --worker_gpu")
	}
	options := value("dataflow_service_options")
	if !strings.Contains(options, "worker_accelerator=") {
		gpu := fmt.Sprintf("worker_accelerator=type:%s;count:%d;install-nvidia-driver;use_nvidia_mps", kind, count)
		fill("dataflow_service_options", strings.TrimPrefix(options+","+gpu, ","))
	}
	if value("sdk_container_image") == "" && value("worker_harness_container_image") == "" {
		fill("sdk_container_image", fmt.Sprintf("%s-docker.pkg.dev/%s/linnet/worker-cuda:%s", *gcpopts.Region, *gcpopts.Project, imageTag()))
	}
	if *jobopts.WorkerBinary == "" {
		worker, err := cudaWorker()
		if err != nil {
			return err
		}
		*jobopts.WorkerBinary = worker
	}
	return nil
}

// CheckPaths refuses files of this machine for a runner whose workers are
// other machines.
func CheckPaths(uris ...string) error {
	if name, err := Name(); err != nil || name != Dataflow {
		return err
	}
	for _, uri := range uris {
		if uri != "" && !strings.HasPrefix(uri, "gs://") {
			return fmt.Errorf("runners: --runner=dataflow: its workers cannot reach %s; copy it to gs://bucket/folder and name that", uri)
		}
	}
	return nil
}

// imageTag is the tag under which scripts/docker publishes the worker's image:
// the version of this program, or latest where it has none.
func imageTag() string {
	if info, ok := debug.ReadBuildInfo(); ok && regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(info.Main.Version) {
		return info.Main.Version
	}
	return "latest"
}

// cudaWorker is the binary for workers with GPUs: this program, where it was
// built for them, or the one beside it that scripts/release calls NAME-cuda.
func cudaWorker() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("runners: --worker_gpu: %w; name the worker's binary with --worker_binary", err)
	}
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" && builtWithCUDA() {
		return self, nil
	}
	beside := strings.TrimSuffix(self, ".exe") + "-cuda"
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
		return beside, nil
	}
	name := strings.TrimSuffix(filepath.Base(self), ".exe")
	return "", fmt.Errorf(`runners: --worker_gpu needs a worker built for CUDA, as %s or named by --worker_binary; on linux/amd64: eval "$(scripts/cuda-env --header)" && go build -tags cuda -o %[2]s-cuda ./pipelines/%[2]s, then --worker_binary=%[2]s-cuda`,
		beside, name)
}

// builtWithCUDA reports whether this program was built with -tags cuda.
func builtWithCUDA() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), "cuda")
	})
}

// cancelDataflow asks Dataflow to end a job; Beam's client only waits for its end, up to
// half a minute more.
func cancelDataflow(ctx context.Context, job string) error {
	client, err := dataflowlib.NewClient(ctx, value("dataflow_endpoint"))
	if err != nil {
		return err
	}
	cancelled := &dataflow.Job{RequestedState: "JOB_STATE_CANCELLED"}
	_, err = client.Projects.Locations.Jobs.Update(*gcpopts.Project, *gcpopts.Region, job, cancelled).Context(ctx).Do()
	return err
}

func value(name string) string { return flag.Lookup(name).Value.String() }

// fill gives a flag of Beam's a value that its own type takes.
func fill(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic("runners: a value that Beam's flag does not take")
	}
}
