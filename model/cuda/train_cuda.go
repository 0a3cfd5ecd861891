//go:build cuda && cgo

package cuda

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
)

// columns are those of all heads.
func (n *Network) columns() int { return len(n.Focal) }

// dense is where each array stands in the dense parameters.
type dense struct {
	layout, layoutBias int
	layers             []denseLayer
	states, line, bias int // of the output
	size               int // numbers
	biases             [][2]int
}

// denseLayer is the forward direction; the backward one stands next numbers
// behind it.
type denseLayer struct{ input, recurrent, bias, next int }

func (n *Network) dense() (d dense) {
	weights := func(rows, columns int) int {
		d.size += rows * columns
		return d.size - rows*columns
	}
	bias := func(columns int) int {
		d.size += columns
		d.biases = append(d.biases, [2]int{d.size - columns, d.size})
		return d.size - columns
	}
	h := n.Hidden
	d.layout, d.layoutBias = weights(n.Layout, n.Embedding), bias(n.Embedding)
	in := n.Embedding
	for range n.Layers {
		var l denseLayer
		for i := range 2 {
			this := denseLayer{input: weights(in, 4*h), recurrent: weights(h, 4*h), bias: bias(4 * h)}
			if i == 0 {
				l = this
			}
			l.next = this.input - l.input
		}
		d.layers = append(d.layers, l)
		in = 2 * h
	}
	d.states, d.line, d.bias = weights(in, n.columns()), weights(n.Embedding, n.columns()), bias(n.columns())
	return d
}

func (p *Parameters) arrays() [6][]float32 {
	return [6][]float32{p.Flat, p.M, p.V, p.Table, p.TableM, p.TableV}
}

var (
	//go:embed train_70.ptx
	trainPTX70 string
	//go:embed train_80.ptx
	trainPTX80 string
)

// Launch bounds and shapes of train.cu.
const (
	gemmSide      = 64  // rows and columns of a block
	gemmThreads   = 128 // and those of a step of an LSTM
	lstmSide      = 16  // windows and units of a block
	rowThreads    = 128
	reduceThreads = 256
	squareBlocks  = 64
	sumColumns    = 32
	sumThreads    = 1024
	rowsThreads   = 256
	partDepth     = 128 // of a product that is split by depth, at least, and at most so many blocks
	splitBlocks   = 264
	residentUnits = 96 // the most of an LSTM whose steps are one kernel
	residentFew   = 64 // windows of which each has a block of its own; of more, four share one
)

// trainTimeout is how long a call into the driver may take, which may wait for a whole
// step: milliseconds, or seconds where others share the GPU.
const trainTimeout = 30 * time.Minute

// Trainer takes training steps on one device: Begin, Add for each part of the
// batch, Finish. The same calls give the same bits on devices of one compute
// capability. It is for one goroutine at a time. When the driver does not answer for
// half an hour, that call and all later ones return model.ErrDeviceLost; the driver may
// yet write where Get was told to.
type Trainer struct {
	net       Network
	dense     dense
	suffix    string // of the kernels with products
	precision int    // of train.cu

	calls   chan func() // run by the goroutine that owns the context
	done    chan struct{}
	timeout time.Duration // of a call
	hangs   error         // of a call that did not come back

	card            // for its device, limit, context, module and bytes in use
	peak      int64 // most bytes in use
	functions map[string]*cu.Function
	failed    error // of a launch; the first one stays

	flat, m, v, grad      buffer // dense parameters
	table, tableM, tableV buffer
	decayed, focal        buffer
	stats, squares        buffer
	ids, rowGrad          buffer // of the step's rows
	rows                  int    // how many
	upload, work          buffer // of a part of the batch
	words                 []uint32
}

// buffer is memory of the device.
type buffer struct {
	at   cu.DevicePtr
	size int64
}

// NewTrainer makes a trainer of net on a device, on which gpuinit.Init has
// started CUDA, with products in that precision ("" is float32). It takes at
// most limit bytes of the device, 0 for no limit.
func NewTrainer(d gpuinit.Device, net Network, precision string, limit int64) (*Trainer, error) {
	t := &Trainer{net: net, dense: net.dense(), card: card{device: d, limit: limit},
		calls: make(chan func()), done: make(chan struct{}), timeout: trainTimeout}
	switch precision {
	case "", Float32:
		t.suffix = "float"
	case Float16:
		t.suffix, t.precision = "half", 1
	case BFloat16:
		t.suffix, t.precision = "bf16", 2
		if d.Major < 8 {
			return nil, fmt.Errorf("cuda: GPU %d (%s) has compute capability %d.%d, and bf16 needs 8.0; use --mixed_precision=fp16", d.Index, d.Name, d.Major, d.Minor)
		}
	default:
		return nil, fmt.Errorf("cuda: precision: %q; it must be %s, %s or %s", precision, Float32, BFloat16, Float16)
	}
	go func() {
		runtime.LockOSThread() // and with the goroutine the thread ends
		for f := range t.calls {
			f()
		}
		close(t.done)
	}()
	if err := t.do(t.open); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// do runs f on the goroutine that owns the context, unless that still waits for the
// driver. It waits in several turns, so that time in which the process was stopped does
// not count.
func (t *Trainer) do(f func() error) error {
	if t.hangs != nil {
		return t.hangs
	}
	err := make(chan error, 1)
	t.calls <- func() { err <- f() }
	for range watchdogTicks + 1 {
		select {
		case err := <-err:
			return err
		case <-time.After(t.timeout / watchdogTicks):
		}
	}
	t.hangs = fmt.Errorf("%w: GPU %d (%s): %w", model.ErrDeviceLost, t.device.Index, t.device.Name, gpuinit.Hangs("training", t.timeout))
	return t.hangs
}

// Close gives the device's memory back, unless the driver does not answer.
func (t *Trainer) Close() {
	_ = t.do(func() error {
		if t.context != (cu.CUContext{}) {
			_ = t.context.Destroy() // with all that it holds
		}
		return nil
	})
	if t.hangs == nil {
		close(t.calls)
		<-t.done
	}
}

// Memory is the memory of the device that the trainer has, the context's
// included, and the most that it had, in bytes.
func (t *Trainer) Memory() (used, peak int64) { return t.used, t.peak }

func (t *Trainer) open() (err error) {
	if err := t.makeContext(); err != nil {
		return err
	}
	ptx := trainPTX80
	if t.device.Major < 8 {
		ptx = trainPTX70
	}
	t.functions = map[string]*cu.Function{}
	for _, name := range t.kernels() {
		t.functions["train_"+name] = new(cu.Function)
	}
	if err := t.load(ptx, t.functions); err != nil {
		return err
	}
	own, table := t.used, int64(4*t.net.Rows*t.net.Embedding)
	// Of several errors the first says enough: here and below, they have one cause.
	for _, b := range []*buffer{&t.flat, &t.m, &t.v, &t.grad} {
		err = cmp.Or(err, t.fitBuffer(b, int64(4*t.dense.size)))
	}
	for _, b := range []*buffer{&t.table, &t.tableM, &t.tableV} {
		err = cmp.Or(err, t.fitBuffer(b, table))
	}
	decayed := slices.Repeat([]byte{1}, t.dense.size)
	for _, b := range t.dense.biases {
		clear(decayed[b[0]:b[1]])
	}
	focal := make([]int32, t.net.columns())
	for i, f := range t.net.Focal {
		if f {
			focal[i] = 1
		}
	}
	err = cmp.Or(err, t.fitBuffer(&t.decayed, int64(len(decayed))), t.fitBuffer(&t.focal, int64(4*len(focal))),
		t.fitBuffer(&t.stats, 5*4), t.fitBuffer(&t.squares, 2*squareBlocks*4))
	if errors.Is(err, model.ErrOutOfMemory) {
		return fmt.Errorf("%w: GPU %d (%s): the model, its gradient and its moments take %s beside the %s of CUDA, and %s; lower --input_size or --hidden_size",
			model.ErrOutOfMemory, t.device.Index, t.device.Name, size(4*int64(4*t.dense.size)+3*table), size(own), t.room())
	}
	if err != nil {
		return err
	}
	if err := put(t, t.decayed, decayed); err != nil {
		return err
	}
	return put(t, t.focal, focal)
}

// kernels are the names of those that t launches, behind train_.
func (t *Trainer) kernels() []string {
	names := []string{"lines", "lines_backward", "rows", "sums", "add", "loss", "total", "squares", "norm", "adamw", "adamw_rows",
		"nn_" + t.suffix, "nt_" + t.suffix, "tn_" + t.suffix}
	u := t.resident()
	if u > residentUnits {
		return append(names, "forward_"+t.suffix, "backward_"+t.suffix)
	}
	for _, windows := range []int{1, 4} {
		names = append(names, fmt.Sprintf("forward_%d_%d", u, windows), fmt.Sprintf("backward_%d_%d", u, windows))
	}
	return names
}

// resident are the units that the kernels have which take all steps of an LSTM.
func (t *Trainer) resident() int {
	if t.net.Hidden <= 32 {
		return 32
	}
	return max(residentUnits, t.net.Hidden)
}

// room says how much memory there is.
func (t *Trainer) room() string {
	if t.limit > 0 {
		return "gpu_memory_limit is " + size(t.limit)
	}
	free, total, err := cu.MemInfo()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s of %s are free", size(free), size(total))
}

func (t *Trainer) free(b *buffer) {
	if b.size > 0 {
		_ = cu.MemFree(b.at)
		t.used -= b.size
		*b = buffer{}
	}
}

// fitBuffer makes b hold n bytes; what stood there is gone if it did not.
func (t *Trainer) fitBuffer(b *buffer, n int64) error {
	if n <= b.size {
		return nil
	}
	t.free(b)
	if t.limit > 0 && t.used+n > t.limit {
		return fmt.Errorf("%w: GPU %d (%s): it takes %s beside the %s that it has, and %s", model.ErrOutOfMemory, t.device.Index, t.device.Name, size(n), size(t.used), t.room())
	}
	var err error
	if b.at, err = cu.MemAlloc(n); err != nil {
		b.at = 0
		return t.failure("taking "+size(n), err)
	}
	b.size = n
	t.used += n
	t.peak = max(t.peak, t.used)
	return nil
}

func put[T any](t *Trainer, to buffer, from []T) error {
	if len(from) == 0 {
		return nil
	}
	if err := cu.MemcpyHtoD(to.at, unsafe.Pointer(&from[0]), int64(len(from))*int64(unsafe.Sizeof(from[0]))); err != nil {
		return t.failure("copying to it", err)
	}
	return nil
}

func get[T any](t *Trainer, to []T, from buffer) error {
	if len(to) == 0 {
		return nil
	}
	if err := cu.MemcpyDtoH(unsafe.Pointer(&to[0]), from.at, int64(len(to))*int64(unsafe.Sizeof(to[0]))); err != nil {
		return t.failure("copying from it", err)
	}
	return nil
}

// Put sets the parameters.
func (t *Trainer) Put(p *Parameters) error {
	return t.do(func() (err error) {
		for i, b := range t.parameters() {
			err = cmp.Or(err, put(t, b, p.arrays()[i]))
		}
		return err
	})
}

// Get reads the parameters; before Put there are none.
func (t *Trainer) Get(p *Parameters) error {
	return t.do(func() (err error) {
		for i, b := range t.parameters() {
			err = cmp.Or(err, get(t, p.arrays()[i], b))
		}
		return err
	})
}

func (t *Trainer) parameters() [6]buffer {
	return [6]buffer{t.flat, t.m, t.v, t.table, t.tableM, t.tableV}
}

// Begin begins a step that uses these rows of the table, slot by slot.
func (t *Trainer) Begin(ids []uint32) error {
	return t.do(func() error {
		t.rows, t.failed = len(ids), nil
		n := int64(max(1, len(ids)))
		// A quarter more than this step needs: the next may use a few more rows.
		bytes := func(b *buffer, each int64) int64 {
			if n*each > b.size {
				return n*each + n*each/4
			}
			return n * each
		}
		grad := 4 * int64(t.net.Embedding)
		err := cmp.Or(t.fitBuffer(&t.ids, bytes(&t.ids, 4)), t.fitBuffer(&t.rowGrad, bytes(&t.rowGrad, grad)))
		if errors.Is(err, model.ErrOutOfMemory) { // the parts of the step before may have needed more than this one's will
			t.freeStep()
			err = cmp.Or(t.fitBuffer(&t.ids, n*4), t.fitBuffer(&t.rowGrad, n*grad))
		}
		if err != nil {
			return err
		}
		if err := put(t, t.ids, ids); err != nil {
			return err
		}
		for _, b := range []buffer{t.grad, t.rowGrad, t.stats} {
			if err := cu.MemsetD8(b.at, 0, b.size); err != nil {
				return t.failure("clearing the gradient", err)
			}
		}
		return nil
	})
}

// layout is where the parts of a batch stand in upload, in words, and in work,
// in floats.
type layout struct {
	lens, ends, ids, scales, slots, slotEnds, rows, slotScales int
	layout, maskX, targets, weights                            int
	maskH                                                      []int
	words                                                      int

	y, x, dx, dh, dsecond, dc, logits, dlogits, loss, right int
	parts                                                   int   // of products split by depth
	z, c, h, out                                            []int // of each layer
	floats                                                  int

	// Rows, and as many as the grids of a product and of a step have room for, and as
	// can be counted in 32 bits.
	lines, most int
}

func (t *Trainer) lay(steps, windows, uses, slots int) (l layout) {
	n, d, h, k, heads := steps*windows, t.net.Embedding, t.net.Hidden, t.net.columns(), len(t.net.Heads)
	l.lines, l.most = n, min(maxGrid*gemmSide, maxGrid*lstmSide*steps, (math.MaxInt32-rowThreads)/d)
	word := func(count int) int {
		at := l.words
		l.words += count
		return at
	}
	l.lens, l.ends, l.ids, l.scales = word(windows), word(n), word(uses), word(uses)
	l.slots, l.slotEnds, l.rows, l.slotScales = word(slots), word(slots), word(uses), word(uses)
	l.layout, l.maskX = word(n*t.net.Layout), word((n*d+31)/32)
	for range t.net.Layers {
		l.maskH = append(l.maskH, word((n*2*h+31)/32))
	}
	l.targets, l.weights = word(n*heads), word(n*heads)

	float := func(count int) int {
		at := l.floats
		l.floats += (count + 31) &^ 31
		return at
	}
	l.y, l.x, l.dx = float(n*d), float(n*d), float(n*d)
	for range t.net.Layers {
		l.z, l.c, l.h, l.out = append(l.z, float(2*n*4*h)), append(l.c, float(2*n*h)), append(l.h, float(n*2*h)), append(l.out, float(n*2*h))
	}
	l.dh, l.dsecond, l.dc = float(n*2*h), float(n*2*h), float(2*windows*h)
	l.logits, l.dlogits, l.loss, l.right = float(n*k), float(n*k), float(n), float(n)
	most := 0
	for _, c := range [][4]int{{2 * h, k, n, 1}, {d, k, n, 1}, {t.net.Layout, d, n, 1}, {d, 4 * h, n, 2}, {2 * h, 4 * h, n, 2}, {h, 4 * h, n - windows, 2}} {
		if parts, _ := split(c[0], c[1], c[2], c[3]); parts > 1 {
			most = max(most, parts*c[3]*c[0]*c[1])
		}
	}
	l.parts = float(most)
	return l
}

// Fit makes room for parts of so many windows of so many steps, with so many uses of
// the table's rows, in batches that use so many of these. Its error is
// model.ErrOutOfMemory where there is none. No step may have begun.
func (t *Trainer) Fit(steps, windows, uses, rows int) error {
	l := t.lay(steps, windows, uses, min(uses, rows))
	n := int64(max(1, rows))
	n += n / 4 // as Begin takes
	return t.do(func() error {
		t.freeStep()
		err := cmp.Or(t.fitBuffer(&t.ids, 4*n), t.fitBuffer(&t.rowGrad, 4*n*int64(t.net.Embedding)))
		return cmp.Or(t.reserve(&l), err)
	})
}

// freeStep frees what a step takes.
func (t *Trainer) freeStep() {
	for _, b := range []*buffer{&t.work, &t.upload, &t.ids, &t.rowGrad} {
		t.free(b)
	}
}

func (t *Trainer) reserve(l *layout) error {
	if l.lines > l.most {
		return fmt.Errorf("%w: GPU %d (%s): %d lines at a time, and a kernel has room for %d", model.ErrOutOfMemory, t.device.Index, t.device.Name, l.lines, l.most)
	}
	words, floats := 4*int64(l.words), 4*int64(l.floats)
	more := words
	if words > t.upload.size {
		more += words / 8 // the next part may use a few more rows
	}
	err := cmp.Or(t.fitBuffer(&t.work, floats), t.fitBuffer(&t.upload, more))
	if errors.Is(err, model.ErrOutOfMemory) { // parts of other shapes may have left them larger than this one needs
		t.free(&t.work)
		t.free(&t.upload)
		err = cmp.Or(t.fitBuffer(&t.work, floats), t.fitBuffer(&t.upload, words))
	}
	if errors.Is(err, model.ErrOutOfMemory) {
		return fmt.Errorf("%w: GPU %d (%s): it takes %s beside the %s that CUDA and the model take, and %s", model.ErrOutOfMemory, t.device.Index, t.device.Name,
			size(words+floats), size(t.used-t.work.size-t.upload.size), t.room())
	}
	return err
}

// Add adds the loss of windows, and its gradient times scale. A gradient that
// does not fit is ErrOutOfMemory, and then nothing was added.
func (t *Trainer) Add(w *Windows, scale float32) error {
	l := t.lay(w.Steps, len(w.Lens), len(w.IDs), len(w.Slots))
	if len(w.IDs) != len(w.Rows) || len(w.Ends) != w.Steps*len(w.Lens) {
		panic("cuda: windows do not fit together")
	}
	u := t.words[:0]
	for _, p := range [][]uint32{of(w.Lens), w.Ends, w.IDs, of(w.Scales), w.Slots, w.SlotEnds, w.Rows, of(w.SlotScales), of(w.Layout), w.MaskX} {
		u = append(u, p...)
	}
	for _, m := range w.MaskH {
		u = append(u, m...)
	}
	u = append(append(u, of(w.Targets)...), of(w.Weights)...)
	t.words = u
	if len(u) != l.words {
		panic("cuda: windows of other sizes")
	}
	return t.do(func() error {
		if err := t.reserve(&l); err != nil {
			return err
		}
		if err := put(t, t.upload, u); err != nil {
			return err
		}
		t.launch(w, &l, scale)
		return t.failed
	})
}

// of is v's own memory.
func of[T int32 | float32](v []T) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

// run launches a kernel on a grid of x, y, z blocks.
func (t *Trainer) run(name string, x, y, z, threads int, args ...any) {
	if t.failed != nil || x == 0 || y == 0 {
		return
	}
	if err := t.functions["train_"+name].Launch(x, y, z, threads, 1, 1, 0, cu.Stream{}, arguments(args)); err != nil {
		t.failed = t.failure("launching kernel train_"+name, err)
	}
}

// matrix is a matrix on the device, or one for each of two directions, the
// second of which stands next numbers behind the first.
type matrix struct {
	at   cu.DevicePtr
	ld   int // numbers from row to row
	next int
}

// gemm is c [m, n] (+)= op(a) [m, k] · op(b) [k, n] + bias, for so many
// directions; op names what is transposed: nn, nt or tn.
func (t *Trainer) gemm(op string, m, n, k, directions int, a, b, c matrix, bias cu.DevicePtr, nextBias int, accumulate bool) {
	add := 0
	if accumulate {
		add = 1
	}
	t.run(op+"_"+t.suffix, ceil(n, gemmSide), ceil(m, gemmSide), directions, gemmThreads,
		a.at, a.ld, a.next, b.at, b.ld, b.next, c.at, c.ld, c.next, bias, nextBias, m, n, k, add, directions, k)
}

// split is into how many parts of which depth a product is split, so that it has
// blocks for a whole device where its result has few.
func split(m, n, k, directions int) (parts, depth int) {
	parts = max(1, min(ceil(k, partDepth), splitBlocks/(ceil(n, gemmSide)*ceil(m, gemmSide)*directions)))
	depth = ceil(max(1, ceil(k, parts)), partDepth) * partDepth // windows of a line have no recurrent product
	return max(1, ceil(k, depth)), depth
}

// addProduct is c += aᵀ · b, of few rows and columns and a depth k of many lines. It
// leaves its parts at scratch.
func (t *Trainer) addProduct(m, n, k, directions int, a, b, c matrix, scratch cu.DevicePtr) {
	parts, depth := split(m, n, k, directions)
	if parts == 1 {
		t.gemm("tn", m, n, k, directions, a, b, c, 0, 0, true)
		return
	}
	t.run("tn_"+t.suffix, ceil(n, gemmSide), ceil(m, gemmSide), parts*directions, gemmThreads,
		a.at, a.ld, a.next, b.at, b.ld, b.next, scratch, n, m*n, cu.DevicePtr(0), 0, m, n, k, 0, directions, depth)
	t.run("add", ceil(m*n, rowThreads), directions, 1, rowThreads, scratch, parts, c.at, c.ld, c.next, m, n)
}

// launch launches the kernels of a part of a batch.
func (t *Trainer) launch(w *Windows, l *layout, scale float32) {
	net, p := &t.net, &t.dense
	steps, b := w.Steps, len(w.Lens)
	n, d, h, k := steps*b, net.Embedding, net.Hidden, net.columns()
	in := func(at int) cu.DevicePtr { return t.upload.at + cu.DevicePtr(4*at) }
	at := func(at int) cu.DevicePtr { return t.work.at + cu.DevicePtr(4*at) }
	weight := func(at int) cu.DevicePtr { return t.flat.at + cu.DevicePtr(4*at) }
	grad := func(at int) cu.DevicePtr { return t.grad.at + cu.DevicePtr(4*at) }

	// Forward.
	t.run("lines", ceil(n*d, rowThreads), 1, 1, rowThreads, in(l.ends), in(l.ids), in(l.scales), in(l.layout), t.table.at,
		weight(p.layout), weight(p.layoutBias), in(l.maskX), w.Keep, in(l.lens), at(l.y), at(l.x), b, n, d, net.Layout)
	units, together := t.resident(), 4
	if b <= residentFew {
		together = 1
	}
	x, width := at(l.x), d
	for i, layer := range p.layers {
		t.gemm("nn", n, 4*h, width, 2, matrix{x, width, 0}, matrix{weight(layer.input), 4 * h, layer.next},
			matrix{at(l.z[i]), 4 * h, n * 4 * h}, weight(layer.bias), layer.next, false)
		if units <= residentUnits {
			t.run(fmt.Sprintf("forward_%d_%d", units, together), ceil(b, together), 2, 1, 4*units, weight(layer.recurrent), layer.next,
				at(l.z[i]), at(l.c[i]), at(l.h[i]), at(l.out[i]), in(l.maskH[i]), w.Keep, in(l.lens), steps, b, h, t.precision)
		} else {
			for s := range steps {
				t.run("forward_"+t.suffix, ceil(h, lstmSide), ceil(b, lstmSide), 2, gemmThreads, weight(layer.recurrent), layer.next,
					at(l.z[i]), at(l.c[i]), at(l.h[i]), at(l.out[i]), in(l.maskH[i]), w.Keep, in(l.lens), s, steps, b, h)
			}
		}
		x, width = at(l.out[i]), 2*h
	}
	logits, dlogits := matrix{at(l.logits), k, 0}, matrix{at(l.dlogits), k, 0}
	t.gemm("nn", n, k, width, 1, matrix{x, width, 0}, matrix{weight(p.states), k, 0}, logits, weight(p.bias), 0, false)
	t.gemm("nn", n, k, d, 1, matrix{at(l.x), d, 0}, matrix{weight(p.line), k, 0}, logits, 0, 0, true)
	t.run("loss", ceil(n, rowThreads), 1, 1, rowThreads, at(l.logits), in(l.targets), in(l.weights), t.focal.at, scale, at(l.dlogits),
		at(l.loss), at(l.right), n, len(net.Heads), net.Heads[0], k)
	t.run("total", 1, 1, 1, reduceThreads, at(l.loss), at(l.right), n, t.stats.at)

	// Backward.
	sums := func(m cu.DevicePtr, next, columns, directions int, to cu.DevicePtr, nextTo int) {
		t.run("sums", ceil(columns, sumColumns), directions, 1, sumThreads, m, next, n, columns, to, nextTo)
	}
	scratch := at(l.parts)
	t.addProduct(width, k, n, 1, matrix{x, width, 0}, dlogits, matrix{grad(p.states), k, 0}, scratch)
	t.addProduct(d, k, n, 1, matrix{at(l.x), d, 0}, dlogits, matrix{grad(p.line), k, 0}, scratch)
	sums(dlogits.at, 0, k, 1, grad(p.bias), 0)
	t.gemm("nt", n, d, k, 1, dlogits, matrix{weight(p.line), k, 0}, matrix{at(l.dx), d, 0}, 0, 0, false)
	dout, below := at(l.dh), at(l.dsecond)
	t.gemm("nt", n, width, k, 1, dlogits, matrix{weight(p.states), k, 0}, matrix{dout, width, 0}, 0, 0, false)
	for i := len(p.layers) - 1; i >= 0; i-- {
		layer := &p.layers[i]
		if units <= residentUnits {
			t.run(fmt.Sprintf("backward_%d_%d", units, together), ceil(b, together), 2, 1, 4*units, weight(layer.recurrent), layer.next,
				at(l.z[i]), at(l.c[i]), dout, in(l.maskH[i]), w.Keep, in(l.lens), steps, b, h, t.precision)
		} else {
			for s := steps - 1; s >= 0; s-- {
				t.run("backward_"+t.suffix, ceil(h, lstmSide), ceil(b, lstmSide), 2, gemmThreads, weight(layer.recurrent), layer.next,
					at(l.z[i]), at(l.c[i]), dout, in(l.maskH[i]), w.Keep, in(l.lens), at(l.dc), s, steps, b, h)
			}
		}
		dz := matrix{at(l.z[i]), 4 * h, n * 4 * h}
		x, width := at(l.x), d
		if i > 0 {
			x, width = at(l.out[i-1]), 2*h
		}
		t.addProduct(width, 4*h, n, 2, matrix{x, width, 0}, dz, matrix{grad(layer.input), 4 * h, layer.next}, scratch)
		// Row r of the states stands with row r±B of dz.
		states := matrix{at(l.h[i]), 2 * h, h + b*2*h}
		after := matrix{at(l.z[i] + b*4*h), 4 * h, n*4*h - b*4*h}
		t.addProduct(h, 4*h, n-b, 2, states, after, matrix{grad(layer.recurrent), 4 * h, layer.next}, scratch)
		sums(dz.at, dz.next, 4*h, 2, grad(layer.bias), layer.next)
		to := below
		if i == 0 {
			to = at(l.dx)
		}
		for direction := range 2 {
			t.gemm("nt", n, width, 4*h, 1, matrix{at(l.z[i] + direction*n*4*h), 4 * h, 0}, matrix{weight(layer.input + direction*layer.next), 4 * h, 0},
				matrix{to, width, 0}, 0, 0, direction == 1 || i == 0)
		}
		dout, below = below, dout
	}
	t.run("lines_backward", ceil(n*d, rowThreads), 1, 1, rowThreads, at(l.dx), at(l.y), in(l.maskX), w.Keep, n*d)
	t.addProduct(net.Layout, d, n, 1, matrix{in(l.layout), net.Layout, 0}, matrix{at(l.dx), d, 0}, matrix{grad(p.layout), d, 0}, scratch)
	sums(at(l.dx), 0, d, 1, grad(p.layoutBias), 0)
	t.run("rows", len(w.Slots), 1, 1, rowsThreads, in(l.slots), in(l.slotEnds), in(l.rows), in(l.slotScales), at(l.dx), t.rowGrad.at, d)
}

// Gradient reads the gradient of the dense parameters and of the step's rows.
func (t *Trainer) Gradient() (dense, rows []float32, err error) {
	dense, rows = make([]float32, t.dense.size), make([]float32, t.rows*t.net.Embedding)
	err = t.do(func() error { return cmp.Or(get(t, dense, t.grad), get(t, rows, t.rowGrad)) })
	return dense, rows, err
}

// SetGradient sets the gradient: what several devices found is added by the host.
func (t *Trainer) SetGradient(dense, rows []float32) error {
	return t.do(func() error { return cmp.Or(put(t, t.grad, dense), put(t, t.rowGrad, rows)) })
}

// Finish clips the gradient and updates the parameters, unless the gradient is
// not finite.
func (t *Trainer) Finish(u *Update) (*Stats, error) {
	var s struct {
		Loss, Right, Norm, Factor float32
		Skip                      int32
	}
	err := t.do(func() error {
		n, d := t.dense.size, t.net.Embedding
		squares := func(i int) cu.DevicePtr { return t.squares.at + cu.DevicePtr(4*i*squareBlocks) }
		t.run("squares", squareBlocks, 1, 1, reduceThreads, t.grad.at, n, squares(0))
		t.run("squares", squareBlocks, 1, 1, reduceThreads, t.rowGrad.at, t.rows*d, squares(1))
		t.run("norm", 1, 1, 1, reduceThreads, t.squares.at, 2*squareBlocks, u.Scale, u.Clip, t.stats.at)
		t.run("adamw", ceil(n, rowThreads), 1, 1, rowThreads, t.flat.at, t.m.at, t.v.at, t.grad.at, t.decayed.at, n, t.stats.at,
			u.Step, u.Correction, u.Decay, u.Epsilon)
		t.run("adamw_rows", ceil(t.rows*d, rowThreads), 1, 1, rowThreads, t.table.at, t.tableM.at, t.tableV.at, t.rowGrad.at, t.ids.at, t.rows, d,
			t.stats.at, u.Step, u.Correction, u.TableEpsilon)
		if t.failed != nil {
			return t.failed
		}
		if err := cu.MemcpyDtoH(unsafe.Pointer(&s), t.stats.at, int64(unsafe.Sizeof(s))); err != nil {
			return t.failure("computing", err)
		}
		return nil
	})
	if err != nil { // a driver that does not answer may yet write to s
		return nil, err
	}
	return &Stats{Loss: s.Loss, Right: int(s.Right), Norm: s.Norm, Skipped: s.Skip != 0}, nil
}
