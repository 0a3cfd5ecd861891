package train

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
)

// lesson is what the teachers are given of a shard: its windows as the student
// sees them, but for whole lines that it is to guess.
type lesson struct {
	batch model.Batch
	probs []float32 // of one teacher
}

// window begins a window of n lines.
func (l *lesson) window(n int) {
	l.batch.Windows = append(l.batch.Windows, model.ContextWindow{First: l.batch.NumLines(), Len: n})
}

// line begins a line, whose groups come by group. It has its layout or, where
// the window is plain, the mean of the training rows, which says nothing to
// teachers of the same documents.
func (l *lesson) line(t *trainer, f *model.Batch, line int, plain bool) {
	o := &l.batch
	if n := t.config.LayoutSize; plain {
		o.Layout = append(o.Layout, t.layoutMean...)
	} else {
		o.Layout = append(o.Layout, f.Layout[line*n:(line+1)*n]...)
	}
}

// group adds a group to the last line.
func (l *lesson) group(ids []uint32, scale float32) {
	b := &l.batch
	b.IDs = append(b.IDs, ids...)
	b.GroupEnd = append(b.GroupEnd, uint32(len(b.IDs)))
	b.GroupScale = append(b.GroupScale, scale)
}

// teach writes the mean of the teachers' probabilities to s.taught.
func (s *shard) teach(t *trainer) error {
	b := &s.lesson.batch
	k := t.net.outputs()
	s.lesson.probs = slices.Grow(s.lesson.probs[:0], b.NumSteps()*k)[:b.NumSteps()*k]
	clear(s.taught)
	share := 1 / float32(len(t.teachers))
	for _, teacher := range t.teachers {
		if err := teacher.Score(context.Background(), b, s.lesson.probs); err != nil {
			return fmt.Errorf("train: teacher: %w", err)
		}
		row := s.lesson.probs
		for i, w := range b.Windows {
			for step := range w.Len {
				for j, p := range row[:k] {
					s.taught[(step*s.windows+i)*k+j] += share * p
				}
				row = row[k:]
			}
		}
	}
	return nil
}

// readWhole has the teachers that engage readied read the documents whole, as prediction
// does, and dismisses them: t.taught is the mean of what they said.
func (t *trainer) readWhole(ctx context.Context, teachers []*model.Weights) error {
	t.taught = make([][]float32, len(t.corpus.docs))
	share := 1 / float32(len(teachers))
	for i, w := range teachers {
		if err := fits("training", t.corpus.docs, &w.Config); err != nil {
			return err
		}
		err := scoreBy(ctx, t.teachers[i], &w.Config, t.corpus, t.workers, func(d int, probs []float32) error {
			if i == 0 {
				t.taught[d] = make([]float32, len(probs))
			}
			for j, p := range probs {
				t.taught[d][j] += share * p
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	t.dismiss()
	return nil
}

// dismiss gives the teachers back.
func (t *trainer) dismiss() {
	for _, teacher := range t.teachers {
		teacher.Close()
	}
	t.teachers = nil
}

// engage readies the teachers.
func (t *trainer) engage(o *Options) error {
	if len(o.Teachers) > 0 && (len(o.GPUs) > 0 || o.Round != nil) {
		return errors.New("train: teachers: only the CPU of one process learns from them; leave out GPUs and workers")
	}
	for i, w := range o.Teachers {
		c, have := &t.config, &w.Config
		others := otherClasses(have, c)
		switch {
		case have.FeatureVersion != c.FeatureVersion || have.InputSize != c.InputSize || have.LayoutSize != c.LayoutSize:
			return fmt.Errorf("train: teacher %d: its feature_version, input_size and layout_size are %d, %d and %d, not %d, %d and %d; train it with the same",
				i+1, have.FeatureVersion, have.InputSize, have.LayoutSize, c.FeatureVersion, c.InputSize, c.LayoutSize)
		case others != "":
			return fmt.Errorf("train: teacher %d: its %s; train it on the same documents, with the same label_set and label_map", i+1, others)
		}
		scorer, err := cpu.New(w)
		if err != nil {
			return fmt.Errorf("train: teacher %d: %w", i+1, err)
		}
		t.teachers = append(t.teachers, scorer)
		t.identity.Teachers = append(t.identity.Teachers, w.Hash())
	}
	return nil
}
