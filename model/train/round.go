package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Round is what the workers of a distributed training do at a time: each takes
// Steps steps from State on, on its share of every batch (Share), and what they
// come to is averaged.
type Round struct {
	State   *State
	Steps   int
	Workers int
	// Merge takes the State of each worker, in their order.
	Merge func(*State) error
}

// Share takes the steps of a round as one of its workers, number worker of
// workers, on machine m. docs are those of the training; others are refused with
// ErrOther.
func Share(ctx context.Context, docs []Document, s *State, worker, workers, steps int, m Machine) (*State, error) {
	if worker < 0 || worker >= workers || workers != s.Training.Workers {
		return nil, fmt.Errorf("train: worker %d of %d, but the training has %d workers", worker, workers, s.Training.Workers)
	}
	id := s.Training
	if got := digest(docs); got != id.Train {
		return nil, fmt.Errorf("train: worker %d: %w: its documents are others than the launcher's; let both read the same files, by one version of the program", worker, ErrOther)
	}
	t := &trainer{config: id.Config, identity: id, worker: worker}
	if err := t.prepare(docs, &m); err != nil {
		return nil, err
	}
	defer t.close()
	if err := t.restore(s); err != nil {
		return nil, err
	}
	first := 0
	for epoch := 0; epoch < t.config.Epochs && first < s.Position.Step+steps; epoch++ {
		all := t.epoch(epoch)
		for i, batch := range all {
			at := first + i
			if at < s.Position.Step || at >= s.Position.Step+steps {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("train: worker %d: stopped at step %d: %w", worker, at, err)
			}
			var next []window
			if i+1 < len(all) && at+1 < s.Position.Step+steps {
				next = cut(all[i+1], worker, workers)
			}
			if err := t.take(cut(batch, worker, workers), next); err != nil {
				return nil, fmt.Errorf("worker %d: %w", worker, err)
			}
		}
		first += len(all)
	}
	if err := t.pull(); err != nil {
		return nil, err
	}
	return t.state(), nil
}

// round lets workers take steps and goes on from their average.
func (t *trainer) round(ctx context.Context, o *Options, steps int) error {
	a := average{t: t, before: t.position.clone()}
	r := Round{State: t.state(), Steps: steps, Workers: o.Distributed, Merge: a.add}
	if err := o.Round(ctx, r); err != nil {
		return err
	}
	if a.workers != o.Distributed {
		return fmt.Errorf("train: %d of %d workers came back from step %d", a.workers, o.Distributed, a.before.Step)
	}
	a.finish(steps)
	return nil
}

// average is the mean of what workers made of t's weights and moments. A row of
// the table is averaged over those workers that used it: Adam moves a row by
// about the learning rate in a step that uses it, however much of the batch
// does, so that the mean with workers that never saw it would train rare words
// slower, the more workers there are.
type average struct {
	t       *trainer
	before  position
	workers int
	dense   [3][]float64 // sums of flat, m, v
	table   [3][]float64 // sums of table, tableM, tableV
	used    []int        // [input_size] workers that used a row
	loss    float64
	steps   int // of all workers that had a window
}

func (a *average) add(s *State) error {
	t := a.t
	if what := s.Training.difference(&t.identity); what != "" {
		return fmt.Errorf("train: worker %d: %w: %s", a.workers, ErrOther, what)
	}
	dense, table := [3][]float32{s.flat, s.m, s.v}, [3][]float32{s.table, s.tableM, s.tableV}
	was := [3][]float32{t.table, t.tableM, t.tableV}
	if a.used == nil {
		a.used = make([]int, t.config.InputSize)
		for i := range a.dense {
			a.dense[i], a.table[i] = make([]float64, len(t.net.flat)), make([]float64, len(t.table))
		}
	}
	for i := range dense {
		if len(dense[i]) != len(a.dense[i]) || len(table[i]) != len(a.table[i]) {
			return errors.New("train: a worker's state has another size")
		}
		for j, v := range dense[i] {
			a.dense[i][j] += float64(v)
		}
	}
	d := t.config.EmbeddingSize
	for id := range a.used {
		at, end := id*d, (id+1)*d
		same := true
		for i := range table {
			same = same && slices.Equal(table[i][at:end], was[i][at:end])
		}
		if same {
			continue
		}
		a.used[id]++
		for i := range table {
			for j, v := range table[i][at:end] {
				a.table[i][at+j] += float64(v)
			}
		}
	}
	p, e := &t.position, &s.Position.Epoch
	a.loss += e.Loss
	a.steps += e.Steps - a.before.Epoch.Steps
	p.Epoch.Right += e.Right - a.before.Epoch.Right
	p.Epoch.Lines += e.Lines - a.before.Epoch.Lines
	p.Epoch.Rows += e.Rows - a.before.Epoch.Rows
	if a.workers == 0 || s.Position.LossScale < p.LossScale {
		p.LossScale, p.ScaleSteps = s.Position.LossScale, s.Position.ScaleSteps
	}
	p.Skipped = max(p.Skipped, s.Position.Skipped)
	a.workers++
	return nil
}

func (a *average) finish(steps int) {
	t, d, n := a.t, a.t.config.EmbeddingSize, float64(a.workers)
	for i, dst := range [][]float32{t.net.flat, t.m, t.v} {
		for j, sum := range a.dense[i] {
			dst[j] = float32(sum / n)
		}
	}
	for i, dst := range [][]float32{t.table, t.tableM, t.tableV} {
		for j, sum := range a.table[i] {
			if used := a.used[j/d]; used > 0 {
				dst[j] = float32(sum / float64(used))
			}
		}
	}
	t.position.Step += steps
	t.position.Epoch.Steps += steps
	// Where the last batch has fewer windows than there are workers, the loss of
	// a round is the mean over those that had one; where all had, it is theirs to the
	// bit.
	mean := a.loss / n
	t.position.Epoch.Loss = mean + (mean-a.before.Epoch.Loss)*(n*float64(steps)/float64(max(1, a.steps))-1)
}
