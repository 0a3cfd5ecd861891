package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cuda"
)

// Machine is what a training computes on.
type Machine struct {
	// Cores run the shards; the result does not depend on it. 0 means
	// GOMAXPROCS.
	Cores int
	// GPUs compute the steps, each a part of every batch; gpuinit.Init has
	// started CUDA on them. With none the CPU does.
	GPUs []gpuinit.Device
	// Memory bounds what is taken of each GPU, in bytes; 0 is no bound.
	Memory int64
}

// ErrNoGPU is the error of a training that cannot begin on its GPUs.
var ErrNoGPU = errors.New("train: a GPU cannot be used")

// gpus takes the steps of a trainer on one or more GPUs. Each has all parameters
// and computes a part of each batch; their gradients are summed by the host, so
// that all parameters stay the same. A part is as large as memory allows, and the
// gradients of several are accumulated.
type gpus struct {
	trainers []*cuda.Trainer
	steps    int // of the longest window
	most     int // windows of a part at a time; halved when memory runs out
	host     int // step that the host's parameters are of, −1 until the GPUs have them

	now, ahead *prepared     // the step that is taken, and the one behind it
	ready      chan struct{} // closed once ahead is; nil where nothing is made ahead
}

// Loss scales of float16, as PyTorch's GradScaler has them: halved after a
// gradient that is not finite, doubled after so many that were.
const (
	firstScale = 1 << 16
	leastScale = 1.0 / (1 << 14)
	growSteps  = 2000
)

// newGPUs makes trainers on the machine's GPUs for t's network, and so many shards
// of so many windows for their batches.
func newGPUs(t *trainer, m *Machine, steps, shards, windows int) (*gpus, error) {
	for _, d := range m.GPUs {
		if first := m.GPUs[0]; d.Major != first.Major || d.Minor != first.Minor { // each takes AdamW's steps by itself
			return nil, fmt.Errorf("%w: GPU %d (%s) has compute capability %d.%d and GPU %d (%s) has %d.%d, which round differently, so that their parameters would not stay the same; choose equal ones by CUDA_VISIBLE_DEVICES",
				ErrNoGPU, first.Index, first.Name, first.Major, first.Minor, d.Index, d.Name, d.Major, d.Minor)
		}
	}
	g := &gpus{steps: steps, most: math.MaxInt, host: -1}
	g.now, g.ahead = newPrepared(t, steps, shards, windows), newPrepared(t, steps, shards, windows)
	s := &t.net.sizes
	net := cuda.Network{Rows: t.config.InputSize, Embedding: s.embedding, Layout: s.layout, Hidden: s.hidden, Layers: s.layers, Heads: s.heads, Focal: s.focal}
	for _, d := range m.GPUs {
		one, err := cuda.NewTrainer(d, net, t.identity.Precision, m.Memory)
		if err != nil {
			g.close()
			return nil, fmt.Errorf("%w: %w", ErrNoGPU, err)
		}
		g.trainers = append(g.trainers, one)
	}
	return g, nil
}

func (g *gpus) close() {
	g.join()
	for _, t := range g.trainers {
		t.Close()
	}
}

// each calls f for every GPU at once.
func (g *gpus) each(f func(i int, t *cuda.Trainer) error) error {
	var group errgroup.Group
	for i, t := range g.trainers {
		group.Go(func() error { return f(i, t) })
	}
	return group.Wait() // the others' errors say the same
}

func (t *trainer) parameters() *cuda.Parameters {
	return &cuda.Parameters{Flat: t.net.flat, M: t.m, V: t.v, Table: t.table, TableM: t.tableM, TableV: t.tableV}
}

// push gives the GPUs the host's parameters, pull the host theirs.
func (g *gpus) push(t *trainer) error {
	g.host = t.position.Step
	return g.each(func(_ int, one *cuda.Trainer) error { return one.Put(t.parameters()) })
}

func (t *trainer) pull() error {
	g := t.gpus
	if g == nil || g.host < 0 || g.host == t.position.Step {
		return nil
	}
	g.host = t.position.Step
	return g.trainers[0].Get(t.parameters())
}

// step takes one step on a batch, and meanwhile prepares the one on the next, nil
// for none.
func (g *gpus) step(t *trainer, batch, next []window) (loss float64, err error) {
	if g.host < 0 {
		if err := g.push(t); err != nil {
			return 0, err
		}
	}
	p := &t.position
	now := g.get(t, batch, p.Step)
	if next != nil {
		g.prepare(t, next, p.Step+1)
	}
	scale := 1.0
	if t.identity.Precision == cuda.Float16 {
		if p.LossScale == 0 {
			p.LossScale = firstScale
		}
		scale = p.LossScale
	}
	if err := g.accumulate(t, now, float32(scale)); err != nil {
		return 0, err
	}
	if err := g.reduce(); err != nil {
		return 0, err
	}
	u := updateOf(t, scale)
	stats := make([]*cuda.Stats, len(g.trainers))
	if err := g.each(func(i int, one *cuda.Trainer) (err error) {
		stats[i], err = one.Finish(&u)
		return err
	}); err != nil {
		return 0, fmt.Errorf("train: step %d: %w", p.Step+1, err)
	}
	t.right = 0
	for _, s := range stats {
		loss += float64(s.Loss)
		t.right += s.Right
	}
	t.norm = float64(stats[0].Norm)
	skipped := stats[0].Skipped
	bad := math.IsNaN(loss) || math.IsInf(loss, 0)
	if (bad || skipped) && (t.identity.Precision != cuda.Float16 || scale <= leastScale) {
		what := fmt.Sprintf("the loss is %v", loss)
		if !bad {
			what = "the gradient is not finite"
		}
		return 0, fmt.Errorf("train: step %d: %s; lower learning_rate", p.Step+1, what)
	}
	if bad { // and skipped
		loss = p.Epoch.loss()
	}
	if t.identity.Precision == cuda.Float16 {
		p.rescale(skipped)
	}
	p.Step++
	return loss, nil
}

// accumulate has the GPUs compute the gradient of a batch, in parts that fit: where
// one does not, the batch is computed anew, in parts of half as many windows.
func (g *gpus) accumulate(t *trainer, now *prepared, scale float32) error {
	for n := len(g.trainers); ; {
		now.pack(t, n, g.most)
		err := g.each(func(i int, one *cuda.Trainer) error { return now.accumulate(i, one, scale) })
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, model.ErrOutOfMemory):
			return fmt.Errorf("train: step %d: %w", t.position.Step+1, err)
		}
		most := min(g.most, (len(now.batch)+n-1)/n)
		if most <= 1 {
			// The rows of the whole batch stand beside the window.
			return fmt.Errorf("train: one window of %s does not fit: %w; lower --window_size, --batch_size or --hidden_size", english.Plural(g.steps, "line", ""), err)
		}
		g.most = (most + 1) / 2
	}
}

// rescale changes the loss scale after a step of float16, which was skipped where its
// gradient was not finite.
func (p *position) rescale(skipped bool) {
	switch p.ScaleSteps++; {
	case skipped:
		p.Skipped++
		p.LossScale, p.ScaleSteps = p.LossScale/2, 0
	case p.ScaleSteps == growSteps:
		p.LossScale, p.ScaleSteps = p.LossScale*2, 0
	}
}

// updateOf is the update of t's next step. Steps that were skipped moved no
// moments.
func updateOf(t *trainer, scale float64) cuda.Update {
	p := &t.position
	a := newStep(t.learningRate(p.Step), t.config.WeightDecay, 0, p.Step-p.Skipped)
	return cuda.Update{Step: a.Step, Correction: a.Correction, Decay: a.Decay, Epsilon: a.Epsilon, TableEpsilon: tableEpsilon, Clip: clipNorm, Scale: float32(scale)}
}

// reduce sums the gradients of several GPUs, in their order, and gives the sum
// to all.
func (g *gpus) reduce() error {
	if len(g.trainers) == 1 {
		return nil
	}
	dense, rows := make([][]float32, len(g.trainers)), make([][]float32, len(g.trainers))
	if err := g.each(func(i int, one *cuda.Trainer) (err error) {
		dense[i], rows[i], err = one.Gradient()
		return err
	}); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	for _, all := range [][][]float32{dense, rows} {
		for _, other := range all[1:] {
			for j, v := range other {
				all[0][j] += v
			}
		}
	}
	return g.each(func(_ int, one *cuda.Trainer) error { return one.SetGradient(dense[0], rows[0]) })
}

// memory is what a GPU has in use and what it had at most, in bytes; of several, the
// largest of each.
func (g *gpus) memory() (used, peak int64) {
	for _, t := range g.trainers {
		u, p := t.Memory()
		used, peak = max(used, u), max(peak, p)
	}
	return used, peak
}

// LargestBatch is the largest batch, in windows, whose parts fit on o.GPUs at
// once, at most those of an epoch, which it returns too. Its error is ErrNoGPU where
// there are none.
func LargestBatch(o Options) (batch, epoch int, err error) {
	n := len(o.GPUs)
	if n == 0 {
		return 0, 0, fmt.Errorf("%w: none is named; set batch_size", ErrNoGPU)
	}
	o.Config.BatchSize = n
	t, err := newTrainer(&o)
	if err != nil {
		return 0, 0, err
	}
	defer t.close()
	steps, all := t.gpus.steps, t.corpus.windows(t.windowSize(), t.config.Seed, 0)
	fit := func(windows int) error {
		uses, rows := t.uses(all, windows*n, n)
		return t.gpus.each(func(_ int, one *cuda.Trainer) error { return one.Fit(steps, windows, uses, rows) })
	}
	if err := fit(1); err != nil {
		return 0, 0, fmt.Errorf("train: one window of %s does not fit: %w; lower --window_size, or --hidden_size", english.Plural(steps, "line", ""), err)
	}
	windows, err := largest(max(1, len(all)/n), fit)
	if err != nil {
		return 0, 0, err
	}
	return windows * n, len(all), nil
}

// uses is how often a part for one of so many GPUs uses rows of the table, and how many
// rows a batch uses, at most, before dropout, where an epoch's windows are cut into
// batches of so many.
func (t *trainer) uses(all []window, batch, gpus int) (uses, rows int) {
	last := make([]int, t.config.InputSize) // batch that used a row, from 1
	number := 0
	for batch := range slices.Chunk(all, batch) {
		number++
		used := 0
		for i := range gpus {
			n := 0
			for _, w := range cut(batch, i, gpus) {
				f := t.corpus.docs[w.doc].Features
				ids := f.IDs[f.FirstID(w.first):f.FirstID(w.first+w.len)]
				n += len(ids)
				for _, id := range ids {
					if last[id] != number {
						last[id] = number
						used++
					}
				}
			}
			uses = max(uses, n)
		}
		rows = max(rows, used)
	}
	return uses, rows
}

// largest is the largest number up to most, within a sixteenth, that fits; 1 does. The
// error of fit is ErrOutOfMemory where one does not, and any other is that of largest.
func largest(most int, fit func(n int) error) (int, error) {
	low, high := 1, most+1 // low fits, and high does not or is too many
	try := func(n int) error {
		err := fit(n)
		switch {
		case err == nil:
			low = n
		case errors.Is(err, model.ErrOutOfMemory):
			high = n
		default:
			return err
		}
		return nil
	}
	for n := 2; n < high; n *= 2 {
		if err := try(n); err != nil {
			return 0, err
		}
	}
	for high-low > max(1, low/16) {
		if err := try((low + high) / 2); err != nil {
			return 0, err
		}
	}
	return low, nil
}

// describeGPUs says where the steps are computed.
func describeGPUs(devices []gpuinit.Device, precision string) string {
	var names []string
	for _, d := range devices {
		names = append(names, fmt.Sprintf("GPU %d %s", d.Index, d.Name))
	}
	return fmt.Sprintf("cuda, %s, %s", precision, strings.Join(names, ", "))
}
