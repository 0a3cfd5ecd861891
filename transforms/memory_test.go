package transforms

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestGroupMemory(t *testing.T) {
	const none, one = "max\n", "9223372036854771712\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no Linux", nil, 0},
		{"docker, version 2", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "314572800\n"}, 314572800},
		{"docker, version 2, no limit", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": none}, 0},
		{"docker, version 1", map[string]string{
			"proc/self/cgroup":                           "9:name=systemd:/docker/5f\n4:memory:/docker/5f\n0::/docker/5f\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "629145600\n",
		}, 629145600},
		{"version 1, no limit", map[string]string{
			"proc/self/cgroup":                           "4:cpuset,memory:/\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": one,
		}, 0},
		{"a step of a batch job, the job's limit above it", map[string]string{
			"proc/self/cgroup":                                   "0::/system.slice/job_7/step_0\n",
			"sys/fs/cgroup/system.slice/memory.max":              none,
			"sys/fs/cgroup/system.slice/job_7/memory.max":        "1073741824\n",
			"sys/fs/cgroup/system.slice/job_7/step_0/memory.max": "2147483648\n",
			"sys/fs/cgroup/system.slice/other/memory.max":        "4096\n",
		}, 1073741824},
		{"a path with colons, and one beyond the namespace", map[string]string{
			"proc/self/cgroup":             "0::/../a:b\n",
			"sys/fs/cgroup/a:b/memory.max": "536870912\n",
		}, 536870912},
	} {
		files := fstest.MapFS{}
		for name, text := range c.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := groupMemory(files); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// A container's limit is a worker's, where neither Options nor the environment has another.
func TestContainerMemory(t *testing.T) {
	defer func(f func() int64) { containerMemory = f }(containerMemory)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(32))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	const none = math.MaxInt64
	for _, c := range []struct {
		container, option, environment int64
		variable                       string
		limit, inFlight                int64
	}{
		{0, 0, none, "", none, 768 << 20},
		{600 << 20, 0, none, "", 450 << 20, 450 << 20 / 16},
		{100 << 20, 0, none, "", 128 << 20, 8 << 20},
		{600 << 20, 0, 500 << 20, "500MiB", 500 << 20, 450 << 20 / 16},
		{600 << 20, 0, none, "off", none, 450 << 20 / 16},
		{64 << 30, 0, none, "", 48 << 30, 768 << 20},
		{600 << 20, 300 << 20, 500 << 20, "500MiB", 300 << 20, 300 << 20 / 16},
	} {
		containerMemory = func() int64 { return c.container }
		t.Setenv("GOMEMLIMIT", c.variable)
		debug.SetMemoryLimit(c.environment)
		f := &readFn{Options: Options{Run: t.Name(), MemoryLimit: c.option}}
		f.Setup()
		if got := debug.SetMemoryLimit(-1); got != c.limit {
			t.Errorf("%+v: Go's limit is %d", c, got)
		}
		if got := f.Options.inFlight(); got != c.inFlight {
			t.Errorf("%+v: in flight are %d", c, got)
		}
	}
}
