package model

import (
	"encoding/binary"
	"strconv"
	"unsafe"
)

// tensor is one named array of Weights: one of f32 and i8 points at the slice
// that holds it.
type tensor struct {
	name    string
	shape   []int
	f32     *[]float32
	i8      *[]int8
	trained bool // counts as a parameter
}

// tensors lists the arrays of w in the order of the file, with the shapes that
// w.Config asks for. Layers that w does not have yet are made, empty.
func (w *Weights) tensors() []tensor {
	c := &w.Config
	for len(w.Layers) < c.NumLayers {
		w.Layers = append(w.Layers, Layer{})
	}
	d, h, k := c.EmbeddingSize, c.HiddenSize, c.NumOutputs()
	list := []tensor{
		{"table", []int{c.InputSize, d}, nil, &w.Table, true},
		{"table_scale", []int{c.InputSize}, &w.TableScale, nil, false},
		{"layout.mean", []int{c.LayoutSize}, &w.LayoutMean, nil, false},
		{"layout.inv_std", []int{c.LayoutSize}, &w.LayoutInvStd, nil, false},
		{"layout.weights", []int{c.LayoutSize, d}, &w.LayoutWeights, nil, true},
		{"layout.bias", []int{d}, &w.LayoutBias, nil, true},
	}
	in := d
	for l := range c.NumLayers {
		for _, dir := range []struct {
			name string
			*Direction
		}{{"forward", &w.Layers[l].Forward}, {"backward", &w.Layers[l].Backward}} {
			prefix := "layers." + strconv.Itoa(l) + "." + dir.name + "."
			list = append(list,
				tensor{prefix + "input_weights", []int{in, 4 * h}, &dir.InputWeights, nil, true},
				tensor{prefix + "recurrent_weights", []int{h, 4 * h}, &dir.RecurrentWeights, nil, true},
				tensor{prefix + "bias", []int{4 * h}, &dir.Bias, nil, true})
		}
		in = 2 * h
	}
	return append(list,
		tensor{"output.weights", []int{2*h + d, k}, &w.OutputWeights, nil, true},
		tensor{"output.bias", []int{k}, &w.OutputBias, nil, true})
}

// len is how many numbers the tensor's shape holds.
func (t *tensor) len() int64 {
	n := int64(1)
	for _, s := range t.shape {
		n *= int64(s)
	}
	return n
}

// bytes is the tensor's size in the file.
func (t *tensor) bytes() int64 {
	if t.i8 != nil {
		return t.len()
	}
	return 4 * t.len()
}

// have is how many numbers the tensor's slice holds.
func (t *tensor) have() int {
	if t.i8 != nil {
		return len(*t.i8)
	}
	return len(*t.f32)
}

// dtype is the name of the tensor's type in the file.
func (t *tensor) dtype() string {
	if t.i8 != nil {
		return "I8"
	}
	return "F32"
}

// data is the tensor in little-endian bytes, which share the slice's memory
// where the machine is little-endian.
func (t *tensor) data() []byte {
	if t.i8 != nil {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(*t.i8))), len(*t.i8))
	}
	f := *t.f32
	if littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
	}
	b, _ := binary.Append(nil, binary.LittleEndian, f)
	return b
}

// setData makes the slice from little-endian bytes. It shares their memory
// where their place and the machine's byte order allow it.
func (t *tensor) setData(b []byte) {
	if t.i8 != nil {
		*t.i8 = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if littleEndian && uintptr(p)%unsafe.Alignof(float32(0)) == 0 {
		*t.f32 = unsafe.Slice((*float32)(p), len(b)/4)
		return
	}
	f := make([]float32, len(b)/4)
	binary.Decode(b, binary.LittleEndian, f)
	*t.f32 = f
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
