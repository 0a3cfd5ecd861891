package train

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/cuda"
)

// trainer is the state of training.
type trainer struct {
	identity      identity
	position      position
	config        model.Config
	corpus        *corpus
	columnWeights []float64 // of the heads' columns in the loss
	workers       int       // cores
	worker        int       // which one this is, of identity.Workers

	net  *network[float32]
	grad []float32 // of net.flat
	m, v []float32 // moments of net.flat

	layoutMean, layoutInvStd []float32

	table          []float32 // [input_size, D]
	tableM, tableV []float32
	slot           []int32 // [input_size], for tablePart.collect
	parts          [tableParts]tablePart

	bestFlat, bestTable []float32 // weights of the best epoch, once there is one
	initFlat, initTable []float32 // what training began with, where identity.InitShare is above 0

	teachers []*cpu.Scorer // that each step asks; nil without any
	taught   [][]float32   // by document, [rows, K], what teachers said of it whole; nil without any

	gpus    *gpus    // take the steps; nil where the CPU does
	shards  []*shard // of the CPU's steps
	longest int      // window, in lines
	right   int      // lines of the last step whose main head was right
	steps   int      // of the whole training
	bounds  []int    // steps where epochs begin and end
	norm    float64  // of the last step's gradient
}

func newTrainer(o *Options) (*trainer, error) {
	if len(o.Train) == 0 {
		return nil, errors.New("train: no documents to train on")
	}
	cfg, err := Classes(o.Train, o.Config, o.Init)
	if err != nil {
		return nil, err
	}
	if o.Init != nil {
		if err := sameSizes(&o.Init.Config, &cfg); err != nil {
			return nil, err
		}
	}
	if !(o.InitShare >= 0 && o.InitShare < 1) || o.InitShare > 0 && o.Init == nil {
		return nil, fmt.Errorf("train: init_share %g: it must be at least 0, less than 1, and 0 without a model to begin with", o.InitShare)
	}
	if err := checkTemperatures(o.Temperatures, &cfg); err != nil {
		return nil, err
	}
	docs := slices.Concat(o.Train, o.Crops)
	t := &trainer{config: cfg, identity: identity{
		Config: cfg, Train: digest(docs), Shards: min(cmp.Or(o.shards, defaultShards), cfg.BatchSize),
		Best: o.Best, EarlyStopping: o.EarlyStopping,
	}}
	if o.Precision != cuda.Float32 {
		t.identity.Precision = o.Precision
	}
	machine := o.Machine
	if n := len(o.GPUs); n > cfg.BatchSize {
		return nil, fmt.Errorf("train: %d GPUs: there must be at most batch_size, %d", n, cfg.BatchSize)
	}
	if o.Round != nil {
		if o.Distributed < 1 || o.Distributed > cfg.BatchSize {
			return nil, fmt.Errorf("train: %d workers: there must be from 1 to batch_size, %d", o.Distributed, cfg.BatchSize)
		}
		t.identity.Workers, t.identity.RoundSteps = o.Distributed, o.RoundSteps
		machine.GPUs = nil // the workers take the steps
	}
	if o.Init != nil {
		t.identity.Init, t.identity.InitShare = o.Init.Hash(), o.InitShare
	}
	if err := t.engage(o); err != nil {
		return nil, err
	}
	if err := t.prepare(docs, &machine); err != nil {
		return nil, err
	}
	if o.Init != nil {
		t.setWeights(o.Init)
	}
	if o.InitShare > 0 {
		t.initFlat, t.initTable = slices.Clone(t.net.flat), slices.Clone(t.table)
	}
	return t, nil
}

// prepare makes all that a trainer of t.identity needs to train on docs.
func (t *trainer) prepare(docs []Document, m *Machine) (err error) {
	cfg := &t.config
	t.workers = m.Cores
	if t.workers <= 0 {
		t.workers = runtime.GOMAXPROCS(0)
	}
	if t.corpus, err = newCorpus("training", docs, cfg); err != nil {
		return err
	}
	if t.corpus.lines == 0 {
		return errors.New("train: no line of the training documents has a label that is a class; give annotated documents")
	}
	if t.columnWeights, err = t.corpus.columnWeights(cfg); err != nil {
		return err
	}
	if t.teachers != nil { // who know of the weights
		t.columnWeights = slices.Repeat([]float64{1}, len(t.columnWeights))
	} else if t.identity.Init != "" { // a new model has its own documents' labels
		t.corpus.leaveOther(cfg)
	}
	largest := 0 // batch
	t.bounds = []int{0}
	for i := range cfg.Epochs {
		all := t.epoch(i)
		for _, batch := range all {
			largest = max(largest, len(batch))
		}
		t.steps += len(all)
		t.bounds = append(t.bounds, t.steps)
	}
	longest := 0
	for _, main := range t.corpus.main {
		longest = max(longest, len(main))
	}
	t.newWeights()
	// A worker's share of a batch goes through as many shards as it is of all.
	world := max(1, t.identity.Workers)
	share := (largest + world - 1) / world
	shards := max(1, t.identity.Shards/world)
	steps, windows := min(t.windowSize(), longest), (share+shards-1)/shards
	if len(m.GPUs) > 0 {
		t.gpus, err = newGPUs(t, m, steps, shards, windows)
		return err
	}
	t.longest = steps
	for range shards {
		g, err := newGraph(t.net, min(steps, defaultWindow), windows)
		if err != nil {
			return err
		}
		t.shards = append(t.shards, &shard{inputs: g.inputs, graph: g, graphs: map[int]*graph[float32]{g.steps: g}})
	}
	return nil
}

// close gives the GPUs and the teachers back.
func (t *trainer) close() {
	if t.gpus != nil {
		t.gpus.close()
		t.gpus = nil
	}
	t.dismiss()
}

// take takes a step on a batch and counts it; next is the batch behind it, if there
// is one. A worker's share of a batch may be empty: it has no loss.
func (t *trainer) take(batch, next []window) error {
	loss, err := t.train(batch, next)
	if err != nil {
		return err
	}
	if len(batch) == 0 {
		return nil
	}
	p := &t.position
	p.Epoch.Steps++
	p.Epoch.Loss += loss
	p.Epoch.Right += t.right
	for _, w := range batch {
		p.Epoch.Rows += w.len
		for _, y := range t.corpus.main[w.doc][w.first : w.first+w.len] {
			if y >= 0 && t.columnWeights[y] > 0 { // of the others none counts as right
				p.Epoch.Lines++
			}
		}
	}
	return nil
}

// train takes one step on a batch and returns its loss. The GPUs' host is at work on
// the next batch meanwhile, where there is one.
func (t *trainer) train(batch, next []window) (loss float64, err error) {
	if t.gpus != nil {
		return t.gpus.step(t, batch, next)
	}
	rowWeight, n := t.rowWeights(batch), len(t.shards)
	for i, s := range t.shards {
		if err := s.fit(t, cut(batch, i, n)); err != nil {
			return 0, err
		}
	}
	t.parallel(len(t.net.matrices), func(i int) { t.net.matrices[i].pack() })
	t.parallel(n, func(i int) {
		s := t.shards[i]
		s.fill(t, cut(batch, i, n), t.position.Step, t.worker*n+i, rowWeight)
		if t.teachers != nil {
			if s.err = s.teach(t); s.err != nil {
				return
			}
		}
		s.loss, s.err = s.graph.run()
	})
	t.right = 0
	for _, s := range t.shards {
		if s.err != nil {
			return 0, s.err
		}
		loss += float64(s.loss)
		t.right += s.graph.right
	}
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, fmt.Errorf("train: step %d: the loss is %v; lower learning_rate", t.position.Step+1, loss)
	}

	t.update()
	t.position.Step++
	return loss, nil
}

// rowWeights is what a labelled line weighs in each head's loss, which is a mean
// over the batch's lines that the head has a target for.
func (t *trainer) rowWeights(batch []window) [2]float64 {
	var labelled [2]int
	for _, w := range batch {
		for r := w.first; r < w.first+w.len; r++ {
			if t.corpus.main[w.doc][r] >= 0 {
				labelled[0]++
			}
			if t.corpus.full[w.doc][r] >= 0 {
				labelled[1]++
			}
		}
	}
	return [2]float64{1 / float64(max(1, labelled[0])), secondHead / float64(max(1, labelled[1]))}
}

// update moves the parameters by the gradient that the shards found.
func (t *trainer) update() {
	params := t.net.parameters
	d := t.config.EmbeddingSize
	norms := make([]float64, len(params)+tableParts)
	t.parallel(len(norms), func(i int) {
		if i < tableParts { // the longest first
			t.parts[i].collect(i, d, t.shards, t.slot)
			norms[i] = squares(t.parts[i].grad)
			return
		}
		p := &params[i-tableParts]
		grad := t.grad[p.at:][:len(p.data)]
		copy(grad, t.shards[0].graph.gradient(i-tableParts))
		for _, s := range t.shards[1:] {
			for j, g := range s.graph.gradient(i - tableParts) {
				grad[j] += g
			}
		}
		norms[i] = squares(grad)
	})
	var sum float64
	for _, s := range norms {
		sum += s
	}
	t.norm = math.Sqrt(sum)
	adamW := newStep(t.learningRate(t.position.Step), t.config.WeightDecay, t.norm, t.position.Step)
	t.parallel(len(norms), func(i int) {
		if i < tableParts {
			t.parts[i].update(adamW, d, t.table, t.tableM, t.tableV)
			return
		}
		p := &params[i-tableParts]
		a := adamW
		if len(p.shape) < 2 {
			a.Decay = 0
		}
		a.Update(p.data, t.grad[p.at:], t.m[p.at:], t.v[p.at:])
	})
}

// learningRate is that of a step.
func (t *trainer) learningRate(step int) float64 {
	return t.config.LearningRate * schedule(step, t.steps)
}

// windowSize is the most lines of a window.
func (t *trainer) windowSize() int { return cmp.Or(t.config.WindowSize, defaultWindow) }

// epoch is the batches of an epoch, from 0. They are drawn anew at each call: those of
// all epochs, of which early stopping may leave most out, would take gigabytes.
func (t *trainer) epoch(i int) [][]window {
	ws := t.corpus.windows(t.windowSize(), t.config.Seed, i)
	return slices.Collect(slices.Chunk(ws, t.config.BatchSize))
}
