//go:build cuda && cgo

package cuda

import (
	"math"
	"strings"
	"unsafe"

	"gorgonia.org/cu"
)

// load has the driver compile those kernels of a PTX file, and finds them. The driver
// compiles all that it is given, for seconds the first time on a machine: the others,
// of other sizes and precisions, are left out.
func (c *card) load(ptx string, kernels map[string]*cu.Function) (err error) {
	if c.module, err = cu.LoadData(only(ptx, kernels)); err != nil {
		return c.failure("loading its kernels", err)
	}
	for name, f := range kernels {
		if *f, err = c.module.Function(name); err != nil {
			return c.failure("looking for kernel "+name, err)
		}
	}
	return nil
}

// arguments are those of a launch as cu takes them: it reads 8 bytes of each, however
// large it is. Inlined, it allocates nothing.
func arguments(args []any) []unsafe.Pointer {
	var of struct {
		values   [20]uint64 // more than any kernel has
		pointers [20]unsafe.Pointer
	}
	for i, a := range args {
		switch a := a.(type) {
		case int: // 32 bits of it, or all where the kernel takes a long long
			of.values[i] = uint64(a)
		case float32:
			of.values[i] = uint64(math.Float32bits(a))
		case cu.DevicePtr:
			of.values[i] = uint64(a)
		default:
			panic("cuda: an argument of another type")
		}
		of.pointers[i] = unsafe.Pointer(&of.values[i])
	}
	return of.pointers[:len(args)]
}

// only is ptx without its other kernels.
func only[T any](ptx string, kernels map[string]T) string {
	const entry, end = "\n.visible .entry ", "\n}\n"
	var out strings.Builder
	for {
		begin := strings.Index(ptx, entry)
		if begin < 0 {
			out.WriteString(ptx)
			return out.String()
		}
		out.WriteString(ptx[:begin])
		ptx = ptx[begin:]
		after := strings.Index(ptx, end) + len(end) - 1
		name, _, _ := strings.Cut(ptx[len(entry):], "(")
		if _, ok := kernels[name]; ok {
			out.WriteString(ptx[:after])
		}
		ptx = ptx[after:]
	}
}
