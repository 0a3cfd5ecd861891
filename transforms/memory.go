package transforms

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// containerMemory is groupMemory of this machine, read once.
var containerMemory = sync.OnceValue(func() int64 { return groupMemory(os.DirFS("/")) })

// groupMemory is the least limit of memory of this process's control groups, of version 1
// or 2, in bytes: what a container, a pod, a batch job or a service may take before the
// kernel kills it. 0 is none.
func groupMemory(root fs.FS) (limit int64) {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // number:controllers:path, no controllers in version 2
	for line := range strings.Lines(string(groups)) {
		_, line, _ = strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, group, _ := strings.Cut(line, ":")
		at, file := "sys/fs/cgroup", "memory.max"
		if controllers != "" {
			at, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if !slices.Contains(strings.Split(controllers, ","), "memory") {
				continue
			}
		}
		// The groups above have limits, too. In a container its own is at the top, whatever path it has outside.
		for group = path.Join("/", group); ; group = path.Dir(group) {
			text, _ := fs.ReadFile(root, path.Join(at, group, file))
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && n > 0 && n < 1<<60 { // version 1 has none as a number near 1<<63
				limit = min(cmp.Or(limit, n), n)
			}
			if group == "/" {
				break
			}
		}
	}
	return limit
}
