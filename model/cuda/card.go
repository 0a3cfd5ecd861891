//go:build cuda && cgo

package cuda

import (
	_ "embed"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"gorgonia.org/cu"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
)

var (
	//go:embed kernels_70.ptx
	ptx70 string
	//go:embed kernels_80.ptx
	ptx80 string
	//go:embed kernels_90.ptx
	ptx90 string
)

// kernelsFor is what a device of that major compute capability runs: its PTX, the order of
// its blocks of weights, the most of residentTiles that it has registers for, and how
// many tiles of windows a block of the resident kernel takes at most.
func kernelsFor(major int) (ptx string, of order, maxResident, maxTogether int) {
	switch {
	case major >= 9:
		return ptx90, orderMMA, 8, 2
	case major == 8:
		return ptx80, orderMMA, 8, 2
	}
	return ptx70, orderWMMA, 6, 1
}

// Launch bounds and shapes of kernels.cu.
const (
	linesThreads   = 64 // a thread computes 2 lines and 16 columns
	projectRows    = 128
	projectTiles   = 4
	projectThreads = 256
	stepRows       = 32
	stepTiles      = 4
	stepThreads    = 128
	stepsRows      = 128
	stepsThreads   = 256
	outputLines    = 64
	outputThreads  = 128

	maxGrid = 65535 // blocks of a grid's second and third dimension
)

// slots is how many batches a device has at a time, each on its own stream: one
// is copied while others are computed. Windows of a thousand lines are a thousand steps,
// one after the other, on a few of the device's multiprocessors: batches share it.
const slots = 4

// plans is how many plans a device has: while the slots' are there, callers lay the
// others, each on its core.
const plans = slots + 4

// card is one device: its context, its copy of the weights and its memory. Only
// the goroutine that runs serve uses it.
type card struct {
	*watchdog
	device gpuinit.Device
	limit  int64
	sizes  sizes

	context                             cu.CUContext
	module                              cu.Module
	lines, project, step, steps, output cu.Function

	resident   []cu.Function // of one tile of windows a block, of two
	processors int           // of the device

	packed  *packed
	weights cu.DevicePtr
	slots   [slots]slot
	used    int64 // bytes of the context, the weights and the slots

	jobs     chan *job // has room for one a plan; closed when all plans are retired
	plans    [plans]*plan
	out      sync.WaitGroup // plans that are not retired
	retired  bool           // take no more plans; Scorer.mu guards it
	pageable bool           // the driver has no page-locked memory
}

// slot is the stream and the memory of a batch.
type slot struct {
	stream cu.Stream
	at     cu.DevicePtr
	size   int64
	job    *job // nil where the slot is free
	mem    memory
}

// job is a Score call on its way through a card.
type job struct {
	plan *plan
	done chan error // of one error
	left bool       // set before that: the card keeps the plan
}

// failure is err of the driver, in words: ErrOutOfMemory where memory is what is
// missing and ErrDeviceLost otherwise, for a context that failed once stays so.
func (c *card) failure(doing string, err error) error {
	if errors.Is(err, cu.OutOfMemory) {
		return fmt.Errorf("%w: GPU %d, %s: %w", model.ErrOutOfMemory, c.device.Index, doing, gpuinit.Explain(err, &c.device))
	}
	return c.lostBy(doing, err)
}

// lostBy is err of the driver after which the card is not used any more.
func (c *card) lostBy(doing string, err error) error {
	return fmt.Errorf("%w: GPU %d (%s), %s: %w", model.ErrDeviceLost, c.device.Index, c.device.Name, doing, gpuinit.Explain(err, &c.device))
}

// open takes the device. The goroutine stays on its thread until close.
func (c *card) open(w *model.Weights, half bool) (err error) {
	runtime.LockOSThread()
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.makeContext(); err != nil {
		return err
	}
	ptx, of, maxResident, maxTogether := kernelsFor(c.device.Major)
	s := &c.sizes
	s.fill(&w.Config)
	s.half, s.element = half, 4
	kind := "float"
	if half {
		kind, s.element = "half", 2
		if k := s.u / tileRows; k <= maxResident {
			s.residentTiles = k
		}
	} else {
		of = orderFloat
	}
	kernels := map[string]*cu.Function{"lines_" + kind: &c.lines, "project_" + kind: &c.project, "output_" + kind: &c.output}
	if s.residentTiles > 0 {
		c.resident = make([]cu.Function, maxTogether)
		for i := range c.resident {
			kernels[fmt.Sprintf("resident_%d_%d", s.residentTiles, i+1)] = &c.resident[i]
		}
	} else {
		kernels["step_"+kind], kernels["steps_"+kind] = &c.step, &c.steps
	}
	if err := c.load(ptx, kernels); err != nil {
		return err
	}
	for i := range c.slots {
		if c.slots[i].stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
			return c.failure("making a stream", err)
		}
	}
	return c.putWeights(w, of)
}

// putWeights packs the weights and copies them to the device.
func (c *card) putWeights(w *model.Weights, of order) (err error) {
	c.packed = pack(w, &c.sizes, of)
	bytes := c.packed.bytes
	c.packed.bytes = nil
	if need := c.used + int64(len(bytes)); c.limit > 0 && need > c.limit {
		return fmt.Errorf("%w: GPU %d: CUDA and the model's weights take %s and gpu_memory_limit is %s", model.ErrOutOfMemory, c.device.Index, size(need), size(c.limit))
	}
	if c.weights, err = cu.MemAlloc(int64(len(bytes))); err != nil {
		return c.failure(fmt.Sprintf("taking %s for the model's weights", size(int64(len(bytes)))), err)
	}
	c.used += int64(len(bytes))
	if err := cu.MemcpyHtoD(c.weights, unsafe.Pointer(&bytes[0]), int64(len(bytes))); err != nil {
		return c.failure("copying the weights", err)
	}
	// The call may return before the bytes are there, and streams would not wait.
	if err := cu.Synchronize(); err != nil {
		return c.failure("copying the weights", err)
	}
	return nil
}

// makeContext makes the context, and counts what that takes of the device. Others
// may have filled it since Init asked what is free.
func (c *card) makeContext() error {
	dev, err := cu.GetDevice(c.device.Ordinal)
	if err != nil {
		return c.failure("opening it", err)
	}
	if c.processors, err = dev.Attribute(cu.MultiprocessorCount); err != nil {
		return c.failure("asking for its processors", err)
	}
	before := int64(gpuinit.FreeMemory(&c.device))
	if c.context, err = dev.MakeContext(cu.SchedBlockingSync); err != nil {
		return c.failure("making a context", err)
	}
	if free, total, err := cu.MemInfo(); err == nil && before > 0 {
		c.used = max(0, before-free-max(0, int64(c.device.Memory)-total))
	}
	return nil
}

// close gives back what open and serve took; callers have none of the plans then.
// Errors tell nothing new: of a lost device all calls fail.
func (c *card) close() {
	defer runtime.UnlockOSThread()
	if c.context == (cu.CUContext{}) {
		return
	}
	for i := range c.slots {
		c.free(&c.slots[i])
		if c.slots[i].stream != (cu.Stream{}) {
			_ = c.slots[i].stream.Destroy()
		}
	}
	for _, p := range c.plans {
		if p != nil {
			c.unlock(p)
		}
	}
	if c.weights != 0 {
		_ = cu.MemFree(c.weights)
	}
	if c.module != (cu.Module{}) {
		_ = c.module.Unload()
	}
	_ = c.context.Destroy()
}

func (c *card) free(s *slot) {
	if s.at != 0 {
		_ = cu.MemFree(s.at)
		c.used -= s.size
		s.at, s.size = 0, 0
	}
}

// serve runs jobs until the channel is closed or the device is lost; then it
// returns why. Every job that it took is answered by then.
func (c *card) serve() error {
	oldest, running := 0, 0
	finish := func() error { // the oldest
		s := &c.slots[oldest]
		c.enter("waiting for a batch")
		err := c.finish(s)
		if !c.leave() {
			return errGivenUp
		}
		c.answer(s.job, err)
		s.job = nil
		oldest, running = (oldest+1)%slots, running-1
		return err
	}
	begin := func(s *slot, j *job) error {
		c.enter("starting a batch")
		err := c.begin(s, j)
		if !c.leave() {
			return errGivenUp
		}
		return err
	}
	lost := func(err error) error {
		for ; running > 0; running-- {
			c.answer(c.slots[oldest].job, err)
			c.slots[oldest].job = nil
			oldest = (oldest + 1) % slots
		}
		return err
	}
	open := true
	for open || running > 0 {
		var j *job
		if running == 0 {
			j, open = <-c.jobs
		} else if running < slots && open {
			select {
			case j, open = <-c.jobs:
			default:
			}
		}
		if j == nil {
			if running > 0 {
				if err := finish(); err != nil {
					return lost(err)
				}
			}
			continue
		}
		s := &c.slots[(oldest+running)%slots]
		err := begin(s, j)
		for errors.Is(err, model.ErrOutOfMemory) && running > 0 {
			// With the device to itself it may fit.
			if err := finish(); err != nil {
				c.answer(j, err)
				return lost(err)
			}
			err = begin(s, j)
		}
		if err != nil {
			c.answer(j, err)
			if errors.Is(err, model.ErrOutOfMemory) {
				continue
			}
			return lost(err)
		}
		s.job = j
		running++
	}
	return nil
}

// errGivenUp ends a card that came back when nobody waited for it.
var errGivenUp = errors.New("cuda: given up")

// fit makes room for n bytes in s. Slots without a job give theirs where it does
// not fit otherwise.
func (c *card) fit(s *slot, n int64) error {
	if n <= s.size {
		return nil
	}
	c.free(s)
	var err error
	for _, ask := range []int64{n + n/4, n, n} {
		if c.limit > 0 && c.used+ask > c.limit {
			err = cu.OutOfMemory
		} else if s.at, err = cu.MemAlloc(ask); err == nil {
			s.size = ask
			c.used += ask
			return nil
		} else if !errors.Is(err, cu.OutOfMemory) {
			break
		}
		if ask == n { // and once more after this
			for i := range c.slots {
				if c.slots[i].job == nil {
					c.free(&c.slots[i])
				}
			}
		}
	}
	return c.failure("taking "+size(n), err)
}

// noRoom says what one window needs and what there is.
func (c *card) noRoom(p *plan, need int64) error {
	free, total, err := cu.MemInfo()
	if err != nil {
		return c.failure("asking for its memory", err)
	}
	text := fmt.Sprintf("%s of %s are free, other processes hold %s", size(free), size(total), size(max(0, total-free-c.used)))
	if c.limit > 0 {
		text += ", gpu_memory_limit is " + size(c.limit)
	}
	return fmt.Errorf("%w: GPU %d: a batch of %s of at most %s takes %s; %s; lower prediction_batch_size, then window_size, or take a model of smaller hidden_size than %d",
		model.ErrOutOfMemory, c.device.Index, english.Plural(len(p.windows), "window", ""), english.Plural(int(p.windows[0].len), "line", ""), size(need), text, c.sizes.hidden)
}

func size(n int64) string { return humanize.IBytes(uint64(n)) }

// begin starts a job on s, whose copies and kernels then run by themselves.
func (c *card) begin(s *slot, j *job) error {
	p := j.plan
	s.mem = p.parts(&c.sizes)
	if err := c.fit(s, int64(s.mem.total)); err != nil {
		if errors.Is(err, model.ErrOutOfMemory) {
			return c.noRoom(p, int64(s.mem.total))
		}
		return err
	}
	if err := cu.MemcpyHtoDAsync(s.at, unsafe.Pointer(&p.upload[0]), int64(4*len(p.upload)), s.stream); err != nil {
		return c.failure("copying a batch", err)
	}
	if err := c.launch(s, p); err != nil {
		// The caller has the plan back then, which a card that reads the host's memory
		// by itself may still copy from, for kernels that were launched already.
		_ = s.stream.Synchronize()
		return err
	}
	return nil
}

// finish waits for s and takes its probabilities into the plan. Any error loses the
// device: where memory is missing here, a smaller batch would not help.
func (c *card) finish(s *slot) error {
	probs := s.job.plan.probs
	if err := cu.MemcpyDtoHAsync(unsafe.Pointer(&probs[0]), c.in(s, s.mem.probs), int64(4*len(probs)), s.stream); err != nil {
		return c.lostBy("copying probabilities", err)
	}
	if err := s.stream.Synchronize(); err != nil {
		return c.lostBy("computing", err)
	}
	c.lock(s.job.plan)
	return nil
}

func (c *card) in(s *slot, at int) cu.DevicePtr { return s.at + cu.DevicePtr(at) }
func (c *card) weight(at int) cu.DevicePtr      { return c.weights + cu.DevicePtr(at) }
func ceil(n, by int) int                        { return (n + by - 1) / by }

// launch launches the kernels of a batch.
func (c *card) launch(s *slot, p *plan) error {
	z, m, w := &c.sizes, &s.mem, c.packed
	var failed error
	run := func(name string, f cu.Function, x, y, depth, threads int, args ...any) {
		if failed != nil {
			return
		}
		if err := f.Launch(x, y, depth, threads, 1, 1, 0, s.stream, arguments(args)); err != nil {
			failed = c.failure("launching kernel "+name, err)
		}
	}
	in, weight := func(at int) cu.DevicePtr { return c.in(s, at) }, c.weight

	run("lines", c.lines, ceil(ceil(p.lines, 2)*(z.e/16), linesThreads), 1, 1, linesThreads,
		in(0), in(m.ends), in(m.scale), in(m.layout), p.lines,
		weight(w.table), weight(w.tableScale), weight(w.mean), weight(w.invStd), weight(w.layoutWeights), weight(w.layoutBias),
		in(m.x), z.layouts, z.e)
	input, rows, byLine := m.x, p.lines, 1
	states := m.states[0]
	for i, l := range w.layers {
		states = m.states[i%2]
		run("project", c.project, ceil(rows, projectRows)*ceil(z.tiles, projectTiles), 1, 1, projectThreads,
			in(input), rows, l.kTiles, weight(l.input), weight(l.bias), in(m.z), z.tiles)
		if z.residentTiles > 0 {
			together := 1
			if 2*ceil(len(p.windows), tileRows) > c.processors { // more blocks than run at once
				together = len(c.resident)
			}
			run("resident", c.resident[together-1], ceil(len(p.windows), together*tileRows), 2, 1, z.u/tileUnits*32,
				weight(l.recurrent), in(m.z), byLine, in(m.windows), in(states), len(p.windows))
		} else {
			for t, active := range p.active {
				f, rows, threads := c.step, stepRows, stepThreads
				if 2*ceil(z.u/tileUnits, stepTiles)*ceil(active, stepsRows) >= c.processors {
					f, rows, threads = c.steps, stepsRows, stepsThreads
				}
				run("step", f, ceil(z.u/tileUnits, stepTiles), ceil(active, rows), 2, threads,
					weight(l.recurrent), in(m.z), byLine, in(m.windows), in(states), in(m.c), t, active, len(p.windows), z.u)
			}
		}
		input, rows, byLine = states, p.steps, 0
	}
	run("output", c.output, len(p.windows), ceil(int(p.windows[0].len), outputLines), 1, outputThreads,
		in(states), in(m.x), in(m.windows), weight(w.outputWeights), weight(w.outputBias), in(m.probs), z.u, z.e, z.k, z.classes)
	return failed
}
