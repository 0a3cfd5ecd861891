package transforms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms/input"
)

// List is PCollection<[]byte>: the address of every document of set, listed on
// a worker and spread over all of them. Only addresses cross the shuffle.
func List(s beam.Scope, opts Options, set *input.Set) beam.PCollection {
	s = s.Scope("linnet.List")
	encoded, err := json.Marshal(set)
	if err != nil {
		panic("transforms: List: " + err.Error())
	}
	paths := beam.ParDo(s, &listFn{Run: opts.Run}, beam.Create(s, encoded))
	return beam.Reshuffle(s, paths)
}

// listFn turns an input.Set, as JSON, into addresses.
type listFn struct{ Run string }

func (f *listFn) ProcessElement(ctx context.Context, encoded []byte, emit func([]byte)) error {
	p := ProgressOf(f.Run)
	set := new(input.Set)
	if err := json.Unmarshal(encoded, set); err != nil {
		return p.fail("list", err)
	}
	err := set.Walk(ctx, func(file input.File) error {
		if !p.Stopped() {
			emit([]byte(file.URI))
		}
		return nil
	})
	if errors.Is(err, input.ErrNone) { // who began the run may see some
		err = fmt.Errorf("%w; a worker elsewhere must reach it by the same name, on a shared disk or gs://", err)
	}
	return p.fail("list", err)
}

func init() { beam.RegisterDoFn(&listFn{}) }
