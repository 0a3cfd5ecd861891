//go:build cuda && cgo

package cuda

// #include <cuda.h>
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"
)

// maxKept is how much memory a plan keeps, in numbers of 32 bits: more than a batch of
// ordinary windows has.
const maxKept = 32 << 20

// lock gives a plan whose batch found no room in its page-locked memory more of that,
// for the next. The device copies from and to it by itself and several times as fast as
// elsewhere. Where the driver has none to give, plans stay in memory of Go's.
func (c *card) lock(p *plan) {
	n := len(p.memory)
	switch {
	case p.card != c || p.isLocked():
	case n > maxKept:
		p.memory = p.locked
	case !c.pageable:
		c.unlock(p)
		n = min(max(n+n/4, 1<<12), maxKept)
		var at unsafe.Pointer
		if C.cuMemHostAlloc(&at, C.size_t(4*n), 0) != C.CUDA_SUCCESS {
			c.pageable = true
			return
		}
		p.locked = unsafe.Slice((*uint32)(at), n)
		p.memory = p.locked
	}
}

func (c *card) unlock(p *plan) {
	if p.locked == nil {
		return
	}
	if p.isLocked() {
		p.memory = nil
	}
	_ = cu.MemFreeHost(unsafe.Pointer(&p.locked[0]))
	p.locked = nil
}

func (p *plan) isLocked() bool {
	return p.locked != nil && unsafe.SliceData(p.locked) == unsafe.SliceData(p.memory)
}
