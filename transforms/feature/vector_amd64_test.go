//go:build !noasm

package feature

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model/kernel"
)

// inVectors runs f for each version of the assembly that this machine can run.
func inVectors(t *testing.T, f func(t *testing.T)) {
	defer func(before bool) { isZen = before }(isZen)
	for _, name := range []string{"avx2", "avx512", "avx512 zen"} {
		t.Run(name, func(t *testing.T) {
			var isa string
			isa, _, isZen = strings.Cut(name, " ")
			restore, _ := kernel.SwitchISA(isa)
			defer restore()
			if kernel.ISA() != isa || !vectors() || avx512() != (isa == "avx512") {
				t.Skipf("this machine does not run the assembly for %s", name)
			}
			f(t)
		})
	}
}

// The assembly equals the Go code beside it, line by line and field by field.
func TestVectors(t *testing.T) { inVectors(t, testVectors) }

func testVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var got, want line
	gotOut, wantOut := make([]uint32, maxIDs+1), make([]uint32, maxIDs+1)
	room := 19 // hashes that may be written behind the last one
	if avx512() {
		room = 0
	}
	try := func(text []byte) {
		t.Helper()
		got.read(text)
		plainly(func() { want.read(text) })
		differ := func(what string, got, want any) {
			t.Helper()
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q: %s: got %v, want %v", text, what, got, want)
			}
		}
		differ("line", string(got.orig), string(want.orig))
		differ("counts", []int{got.length, got.indent, got.letters, got.uppers, got.digits, got.others, got.spaces, got.words, got.capitalised},
			[]int{want.length, want.indent, want.letters, want.uppers, want.digits, want.others, want.spaces, want.words, want.capitalised})
		differ("signs", got.signs, want.signs)
		differ("form feed and beyond ASCII", []bool{got.feed, got.wide, got.wideLetters}, []bool{want.feed, want.wide, want.wideLetters})
		n := want.tokens.n
		differ("trimmed line", []int{got.from, got.end, got.headEnd}, []int{want.from, want.end, want.headEnd})
		differ("low", string(got.low[got.from:got.end]), string(want.low[want.from:want.end]))
		differ("masks", got.masks[:got.end/64+1], want.masks[:want.end/64+1])
		differ("number of tokens", got.tokens.n, n)
		differ("begins", got.tokens.at[:n], want.tokens.at[:n])
		differ("ends", got.tokens.end[:n], want.tokens.end[:n])
		differ("what is hashed", got.tokens.hashed[:n], want.tokens.hashed[:n])
		differ("characters", got.tokens.runes[:n], want.tokens.runes[:n])
		for _, b := range []struct {
			name      string
			got, want *bitset
		}{
			{"letter", &got.tokens.letter, &want.tokens.letter}, {"digit", &got.tokens.digit, &want.tokens.digit},
			{"upper", &got.tokens.upper, &want.tokens.upper}, {"spaced", &got.tokens.spaced, &want.tokens.spaced},
			{"title", &got.tokens.title, &want.tokens.title}, {"capitals", &got.tokens.capitals, &want.tokens.capitals},
			{"mixed", &got.tokens.mixed, &want.tokens.mixed},
		} {
			differ(b.name, *b.got, *b.want)
		}
		for k := range n {
			if got.tokens.class(k) != other {
				differ("key", got.tokens.keys[k], want.tokens.keys[k])
			}
		}
		for w := range (n + 63) / 64 {
			letters, digits := want.tokens.letter[w], want.tokens.digit[w]
			differ("what may be an abbreviation", got.tokens.known[w]&letters, want.tokens.known[w])
			differ("words of several characters", got.tokens.several[w]&letters, want.tokens.several[w])
			differ("numbers of four", got.tokens.four[w]&digits, want.tokens.four[w])
			for i := 1; i < len(got.tokens.signs); i++ {
				others := until(64*w, n) &^ (letters | digits)
				differ("places of signs", got.tokens.signs[i][w]&others, want.tokens.signs[i][w])
			}
		}
		differ("shapes", got.tokens.shapes[:min(n, shapedTokens)], want.tokens.shapes[:min(n, shapedTokens)])
		const guard = 0xfeedbeef
		for i := range gotOut {
			gotOut[i] = guard
		}
		word, pair, affix := got.hashTokens(gotOut[:maxIDs])
		var ends [3]int
		plainly(func() { ends[0], ends[1], ends[2] = want.hashTokens(wantOut) })
		differ("ends of groups", [3]int{word, pair, affix}, ends)
		if !slices.Equal(gotOut[:affix], wantOut[:affix]) {
			t.Fatalf("%q: hashes differ:\n got %x\nwant %x", text, gotOut[:affix], wantOut[:affix])
		}
		behind := gotOut[min(affix+room, maxIDs):]
		if i := slices.IndexFunc(behind, func(h uint32) bool { return h != guard }); i >= 0 {
			t.Fatalf("%q: hash %d of %d is written", text, len(gotOut)-len(behind)+i, affix)
		}
		first := got.edges(gotOut, 0)
		plainly(func() { differ("number of edges", first, want.edges(wantOut, 0)) })
		if !slices.Equal(gotOut[:first], wantOut[:first]) {
			t.Fatalf("%q: edges differ:\n got %x\nwant %x", text, gotOut[:first], wantOut[:first])
		}
	}
	for c := range byte(0x80) {
		try([]byte{'a', c, 'B', c, c})
	}
	for _, unit := range []string{"a", "A", "1", ".", " ", "Ab", "aB", "ABc1", "a ", "a. ", "1-", "nov. sp ", "≡", "_", "=(&;,. ", "É", "–", "١", "Amanita", "𐐀"} {
		for n := range 140 {
			try([]byte(strings.Repeat(unit, n)))
			try([]byte(" " + strings.Repeat(unit, n) + " x"))
		}
		for n := 500; n < 530; n++ {
			try([]byte(strings.Repeat(unit, n)[:n]))
		}
	}
	for n := 505; n < 516; n++ { // all of maxIDs, nearly
		try([]byte(strings.Repeat("Amanita ", n)))
	}
	for i := range 30000 {
		text := bytes.ReplaceAll(randomText(r, r.IntN(1+i%200), i%3*20), []byte("\n"), []byte(" "))
		try(text[r.IntN(1+len(text)/4):])
	}
}

func TestFamilies(t *testing.T) {
	for _, tt := range []struct {
		name          string
		signature     uint32
		slowPEXT, zen bool
	}{
		{"Zen", 0x800f11, true, false},
		{"Zen 2", 0x870f10, true, false},
		{"Hygon Dhyana", 0x900f01, true, false},
		{"Zen 3", 0xa20f12, false, true},
		{"Zen 4", 0xa10f11, false, true},
		{"Zen 5", 0xb00f21, false, true},
		{"Haswell", 0x306c3, false, false},
		{"Alder Lake", 0x90672, false, false},
		{"Granite Rapids", 0xa06d1, false, false},
	} {
		if got := [2]bool{slowPEXT(tt.signature), zen(tt.signature)}; got != [2]bool{tt.slowPEXT, tt.zen} {
			t.Errorf("%s: got %v, want %v and %v", tt.name, got, tt.slowPEXT, tt.zen)
		}
	}
}

func TestSum(t *testing.T) { inVectors(t, testSum) }

func testSum(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	var room [65]uint64 // one more may be read
	keys := (*[64]uint64)(room[:])
	for i := range keys {
		keys[i] = r.Uint64()
	}
	for k := range 10000 {
		which := r.Uint64() >> (k % 65)
		parted, small, n := r.Uint64(), which&r.Uint64(), r.IntN(maxTokens+1-bits.OnesCount64(which))
		got, gotSum := sum([]uint64{1, 2}, 3, keys, which, parted, n, small)
		var want []uint64
		var wantSum uint64
		plainly(func() { want, wantSum = sum([]uint64{1, 2}, 3, keys, which, parted, n, small) })
		if !slices.Equal(got, want) || gotSum != wantSum {
			t.Fatalf("%#x, %#x from place %d, %#x: got %x and %#x, want %x and %#x", which, parted, n, small, got, gotSum, want, wantSum)
		}
	}
}

func TestFinish(t *testing.T) { inVectors(t, testFinish) }

func testFinish(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for n := 1; n < 70; n++ {
		h := make([]uint32, n+1)
		for i := range h {
			h[i] = r.Uint32()
		}
		want := slices.Clone(h)
		for i := range n {
			want[i] = fmix32(h[i]) & 0xfff
		}
		if fmix32Vector(h[:n], 0xfff); !slices.Equal(h, want) {
			t.Fatalf("%d hashes: got %x, want %x", n, h, want)
		}
	}
}
