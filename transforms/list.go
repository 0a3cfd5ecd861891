package transforms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"

	"github.com/linnet-ml/linnet/transforms/input"
)

// List is PCollection<[]byte>: the address of every document of set, listed on
// a worker and spread over all of them. Only addresses cross the shuffle.
func List(s beam.Scope, opts Options, set *input.Set) beam.PCollection {
	s = s.Scope("linnet.List")
	paths := beam.ParDo(s, &listFn{Run: opts.Run}, beam.Create(s, encode("List", set)))
	return beam.Reshuffle(s, paths)
}

// encode is set as JSON, for a transform. It panics where set is empty.
func encode(transform string, set *input.Set) []byte {
	if set == nil || len(set.Args) == 0 {
		panic("transforms: " + transform + ": the input.Set is empty; make one with input.New")
	}
	encoded, err := json.Marshal(set)
	if err != nil {
		panic("transforms: " + transform + ": " + err.Error())
	}
	return encoded
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
		if !p.Stopped() && !set.Earlier(file.URI) {
			emit([]byte(file.URI))
		}
		return nil
	})
	if other := set.LeaveOut(); other != "" { // that of a run which began since who began this one looked
		log.Warnf(ctx, "linnet: %s", other)
	}
	if errors.Is(err, input.ErrNone) { // who began the run may see some
		err = fmt.Errorf("%w; a worker elsewhere must reach it by the same name, on a shared disk or gs://", err)
	}
	return p.fail("list", err)
}

func init() { beam.RegisterDoFn(&listFn{}) }
