//go:build !noasm

package feature

import (
	"bytes"
	"os"
	"slices"
	"syscall"
	"testing"
)

// What a document ends with may be the end of memory.
func TestVectorsAtEnd(t *testing.T) {
	inVectors(t, func(t *testing.T) {
		text := atEnd(t, bytes.Repeat([]byte("Amanita muscaria (L.) Lam. 1783 "), 8))
		var got, want line
		for n := range len(text) {
			raw := text[len(text)-n:]
			got.read(raw)
			plainly(func() { want.read(raw) })
			if !bytes.Equal(got.low[got.from:got.end], want.low[want.from:want.end]) || !slices.Equal(got.masks[:n/64+1], want.masks[:n/64+1]) {
				t.Fatalf("%q: got %q and %x, want %q and %x", raw, got.low[got.from:got.end], got.masks[:n/64+1], want.low[want.from:want.end], want.masks[:n/64+1])
			}
		}
	})
}

// atEnd is a copy of b behind which there is memory that must not be read.
func atEnd(t *testing.T, b []byte) []byte {
	page := os.Getpagesize()
	m, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(m) })
	if err := syscall.Mprotect(m[page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	m = m[page-len(b) : page : page]
	copy(m, b)
	return m
}
