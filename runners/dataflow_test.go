package runners

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
)

// filled are the flags that --worker_gpu fills in.
var filled = []string{"worker_machine_type", "dataflow_service_options", "sdk_container_image", "worker_binary"}

func TestWorkerGPU(t *testing.T) {
	type flags = map[string]string
	cases := map[string]struct {
		flags flags
		want  flags  // of those filled in
		err   string // "" for none
	}{
		"alone": {flags{"worker_gpu": "1", "worker_binary": "w"}, flags{
			"worker_machine_type":      "g2-standard-8",
			"dataflow_service_options": "worker_accelerator=type:nvidia-l4;count:1;install-nvidia-driver;use_nvidia_mps",
			"sdk_container_image":      "r-docker.pkg.dev/p/linnet/worker-cuda:latest",
			"worker_binary":            "w",
		}, ""},
		"four of another type": {flags{"worker_gpu": "4", "worker_gpu_type": "nvidia-tesla-t4", "worker_binary": "w"}, flags{
			"worker_machine_type":      "n1-standard-32",
			"dataflow_service_options": "worker_accelerator=type:nvidia-tesla-t4;count:4;install-nvidia-driver;use_nvidia_mps",
		}, ""},
		"all overridden": {flags{"worker_gpu": "1", "worker_machine_type": "g2-standard-32", "sdk_container_image": "i", "worker_binary": "w",
			"dataflow_service_options": "enable_prime,worker_accelerator=type:nvidia-l4;count:1"}, flags{
			"worker_machine_type":      "g2-standard-32",
			"dataflow_service_options": "enable_prime,worker_accelerator=type:nvidia-l4;count:1",
			"sdk_container_image":      "i",
		}, ""},
		"beside other options": {flags{"worker_gpu": "1", "worker_binary": "w", "dataflow_service_options": "enable_google_cloud_profiler"}, flags{
			"dataflow_service_options": "enable_google_cloud_profiler,worker_accelerator=type:nvidia-l4;count:1;install-nvidia-driver;use_nvidia_mps",
		}, ""},
		"custom machine":     {flags{"worker_gpu": "1", "worker_gpu_type": "nvidia-tesla-t4", "worker_machine_type": "n1-custom-6-20480", "worker_binary": "w"}, nil, ""},
		"alias of machine":   {flags{"worker_gpu": "1", "machine_type": "n2-standard-8", "worker_binary": "w"}, nil, "n2-standard-8 cannot carry 1 nvidia-l4"},
		"too small":          {flags{"worker_gpu": "2", "worker_machine_type": "g2-standard-8", "worker_binary": "w"}, nil, "cannot carry 2 nvidia-l4; use g2-standard-24"},
		"unknown type":       {flags{"worker_gpu": "1", "worker_gpu_type": "tpu"}, nil, "--worker_gpu_type=tpu"},
		"odd count":          {flags{"worker_gpu": "3"}, nil, "one of [1 2 4 8]"},
		"negative":           {flags{"worker_gpu": "-1"}, nil, "0 or more"},
		"type alone":         {flags{"worker_gpu_type": "nvidia-tesla-t4"}, nil, "needs --worker_gpu"},
		"spot":               {flags{"worker_gpu": "1", "flexrs_goal": "FLEXRS_COST_OPTIMIZED", "worker_binary": "w"}, nil, "carry no GPU"},
		"no worker":          {flags{"worker_gpu": "1"}, nil, "-tags cuda -o runners.test-cuda ./pipelines/runners.test, then --worker_binary=runners.test-cuda"},
		"of another runner":  {flags{"worker_gpu": "1", "runner": "direct"}, nil, "--worker_gpu is for"},
		"of another, less":   {flags{"worker_gpu": "-1", "runner": "direct"}, nil, "--worker_gpu is for"},
		"type of another":    {flags{"worker_gpu_type": "bogus", "runner": "direct"}, nil, "--worker_gpu is for"},
		"without, unchanged": {flags{}, flags{"worker_machine_type": "", "dataflow_service_options": "", "sdk_container_image": "", "worker_binary": ""}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := flags{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "gs://b/x"}
			for _, name := range filled {
				all[name] = ""
			}
			maps.Copy(all, c.flags)
			set(t, all)
			err := Check()
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("got %v, want %q", err, c.err)
			}
			for name, want := range c.want {
				if got := value(name); got != want {
					t.Errorf("--%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestWorkerBeside(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := self + "-cuda"
	if err := os.WriteFile(beside, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(beside)
	set(t, map[string]string{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "gs://b/x", "worker_gpu": "1",
		"worker_machine_type": "", "dataflow_service_options": "", "sdk_container_image": "", "worker_binary": ""})
	if err := Check(); err != nil || *jobopts.WorkerBinary != beside {
		t.Errorf("the worker is %q, error %v, want %s", *jobopts.WorkerBinary, err, filepath.Base(beside))
	}
}
