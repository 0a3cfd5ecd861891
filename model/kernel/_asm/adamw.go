package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// adamW writes AdamW.Update, each product and sum rounded by itself as there.
func adamW(v vector) {
	TEXT("adamW"+v.isa, NOSPLIT, "func(a, w, grad, m, v *float32, n uintptr)")
	Doc("adamW" + v.isa + " is AdamW.Update.")
	Pragma("noescape")
	a, w, g, mean, square := param("a"), param("w"), param("grad"), param("m"), param("v")
	field := func(i int) VecVirtual { // of AdamW
		r := v.reg()
		VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, r)
		return r
	}
	clip, step, correction, decay, epsilon := field(0), field(1), field(2), field(3), field(4)
	beta1, rest1 := v.broadcast("beta1", .9), v.broadcast("rest1", 1-.9)
	beta2, rest2 := v.broadcast("beta2", .999), v.broadcast("rest2", 1-.999)
	v.sweep("", param("n"), []Register{w, g, mean, square}, func(l lanes) {
		x := l.load(Mem{Base: g})
		VMULPS(clip, x, x)
		y := v.reg()
		VMULPS(rest2, x, y)
		VMULPS(x, y, y)
		VMULPS(rest1, x, x)
		r := l.load(Mem{Base: mean})
		VMULPS(beta1, r, r)
		VADDPS(x, r, r)
		l.store(r, Mem{Base: mean})
		VMULPS(step, r, r)
		s := l.load(Mem{Base: square})
		VMULPS(beta2, s, s)
		VADDPS(y, s, s)
		l.store(s, Mem{Base: square})
		VMULPS(correction, s, s)
		VSQRTPS(s, s)
		VADDPS(epsilon, s, s)
		VDIVPS(s, r, r)
		t := l.load(Mem{Base: w})
		VMULPS(decay, t, x)
		VADDPS(x, r, r)
		VSUBPS(r, t, t)
		l.store(t, Mem{Base: w})
	})
	VZEROUPPER()
	RET()
}
