//go:build !noasm

package kernel

import "testing"

// BenchmarkPeak is what the multipliers do at best: independent
// multiply-adds of registers.
func BenchmarkPeak(b *testing.B) {
	for i, p := range []func(uintptr){isaAVX2: peakAVX2, isaAVX512: peakAVX512} {
		if p == nil || !supported(isa(i)) {
			continue
		}
		b.Run(isaNames[i], func(b *testing.B) {
			gflops(b, float64(2*1000*12*isa(i).panelWidth()/2), func() { p(1000) })
		})
	}
	if supported(isaAMX) {
		b.Run("tiles", func(b *testing.B) {
			var config [64]byte
			configure(&config, 32, 32)
			gflops(b, 1000*4*2*16*16*32, func() { peakAMX(&config, 1000) })
		})
	}
}
