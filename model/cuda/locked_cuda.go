//go:build cuda && cgo

package cuda

// #include <cuda.h>
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"
)

// lock gives a plan whose batch found no room in its page-locked memory more of that,
// for the next. The device copies from and to it by itself and several times as fast as
// elsewhere. Where the driver has none to give, plans stay in memory of Go's.
func (c *card) lock(p *plan) {
	if p.card != c || c.pageable || p.isLocked() {
		return
	}
	c.unlock(p)
	n := max(len(p.memory)+len(p.memory)/4, 1<<12)
	var at unsafe.Pointer
	if C.cuMemHostAlloc(&at, C.size_t(4*n), 0) != C.CUDA_SUCCESS {
		c.pageable = true
		return
	}
	p.locked, p.memory = at, unsafe.Slice((*uint32)(at), n)
}

func (c *card) unlock(p *plan) {
	if p.locked == nil {
		return
	}
	if p.isLocked() {
		p.memory, p.upload, p.probs = nil, nil, nil
	}
	_ = cu.MemFreeHost(p.locked)
	p.locked = nil
}

func (p *plan) isLocked() bool {
	return p.locked != nil && p.locked == unsafe.Pointer(unsafe.SliceData(p.memory))
}
