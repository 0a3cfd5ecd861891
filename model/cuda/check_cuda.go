//go:build cuda && cgo

package cuda

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/linnet-ml/linnet/gpuinit"
)

//go:embed check.ptx
var ptxCheck string

// Check has d, which gpuinit.Init started, sum x and multiply a [m, k] by b
// [k, n], ten times each; n is at most 1,024. It says what came out and judges
// nothing. A driver that is not done within timeout (0 is 5 minutes) does not
// answer.
func Check(d gpuinit.Device, x, a, b []float32, m, k, n int, timeout time.Duration) (*Checked, error) {
	timeout = cmp.Or(timeout, defaultTimeout)
	type result struct {
		out *Checked
		err error
	}
	done := make(chan result, 1)
	go func() { // on a thread that ends with the context
		runtime.LockOSThread()
		out, err := check(d, x, a, b, m, k, n)
		done <- result{out, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-time.After(timeout):
		r.err = gpuinit.Hangs("checking it", timeout)
	}
	if r.err != nil {
		return nil, fmt.Errorf("cuda: check: %w", gpuinit.Explain(r.err, &d))
	}
	return r.out, nil
}

func check(d gpuinit.Device, x, a, b []float32, m, k, n int) (*Checked, error) {
	dev, err := cu.GetDevice(d.Ordinal)
	if err != nil {
		return nil, err
	}
	context, err := dev.MakeContext(cu.SchedBlockingSync)
	if err != nil {
		return nil, err
	}
	defer context.Destroy() // with all that it holds
	module, err := cu.LoadData(ptxCheck)
	if err != nil {
		return nil, err
	}
	sum, err := module.Function("check_sum")
	if err != nil {
		return nil, err
	}
	product, err := module.Function("check_product")
	if err != nil {
		return nil, err
	}
	put := func(v []float32) (at cu.DevicePtr) {
		if err == nil {
			if at, err = cu.MemAlloc(int64(4 * len(v))); err == nil {
				err = cu.MemcpyHtoD(at, unsafe.Pointer(&v[0]), int64(4*len(v)))
			}
		}
		return at
	}
	// What a launch should have written and did not is NaN.
	nan := make([]float32, m*n)
	for i := range nan {
		nan[i] = float32(math.NaN())
	}
	onX, onA, onB, onSum, onProduct := put(x), put(a), put(b), put(nan[:1]), put(nan)
	if err != nil {
		return nil, err
	}
	launch := func(f cu.Function, blocks, threads int, to cu.DevicePtr, result []float32, args ...uint64) (time.Duration, error) {
		bytes := int64(4 * len(result))
		if err := cu.MemcpyHtoD(to, unsafe.Pointer(&nan[0]), bytes); err != nil {
			return 0, err
		}
		pointers := make([]unsafe.Pointer, len(args))
		for i := range args {
			pointers[i] = unsafe.Pointer(&args[i])
		}
		begin := time.Now()
		if err := f.Launch(blocks, 1, 1, threads, 1, 1, 0, cu.Stream{}, pointers); err != nil {
			return 0, err
		}
		if err := cu.Synchronize(); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		return took, cu.MemcpyDtoH(unsafe.Pointer(&result[0]), to, bytes)
	}
	out := new(Checked)
	for i := range 10 {
		one, c := make([]float32, 1), make([]float32, m*n)
		if _, err := launch(sum, 1, 1, onSum, one, uint64(onX), uint64(uint32(len(x))), uint64(onSum)); err != nil {
			return nil, err
		}
		took, err := launch(product, m, n, onProduct, c, uint64(onA), uint64(onB), uint64(onProduct), uint64(uint32(k)), uint64(uint32(n)))
		if err != nil {
			return nil, err
		}
		switch i {
		case 0:
			out.First, out.Sum, out.Product = took, one[0], c
		case 9:
			out.Tenth = took
		}
		out.Differ = out.Differ || one[0] != out.Sum || !slices.Equal(c, out.Product)
	}
	return out, nil
}
