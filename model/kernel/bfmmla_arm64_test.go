//go:build !noasm

package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestSplitRows(t *testing.T) {
	if !supported(isaBFMMLA) {
		t.Skip("this machine has no bfmmla")
	}
	r := rand.New(rand.NewPCG(17, 18))
	for k := 1; k <= 40; k++ {
		for rows := 1; rows <= 5; rows++ {
			lda, depth := k+k%7, roundUp(k, bfmmlaDepth)
			a := gateArguments(r, (1+rows)*lda)
			spoilSome(r, a, nan, inf, -inf, math.MaxFloat32, 1+1.0/256)
			got := aligned64(2*depth*roundUp(rows, 2) + 1)
			for i := range got {
				got[i] = 0xbad
			}
			splitRows(got, term{guard(a, k%8).x, lda, &Packed{K: k}}, 1, rows)
			for i := range roundUp(rows, 2) {
				row := min(1+i, rows) // the last one is its own partner
				for l := range depth {
					rest, at := float32(0), 2*depth*(i-i%2)+l/4*16+i%2*4+l%4
					if l < k {
						rest = a[row*lda+l]
					}
					for part := range 2 {
						w, g := bfloat16(rest), got[at+8*part]
						if g != w && !(w&0x7fff > 0x7f80 && g&0x7fff > 0x7f80) { // any NaN for a NaN
							t.Fatalf("%d rows, k %d: part %d of row %d at %d: got %x, want %x", rows, k, part, i, l, g, w)
						}
						rest -= rounded(rest)
					}
				}
			}
			if got[len(got)-1] != 0xbad {
				t.Fatalf("%d rows, k %d: wrote behind the rows", rows, k)
			}
		}
	}
}
