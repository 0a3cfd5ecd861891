package averaging_test

import (
	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/averaging"
)

// Two workers take a hundred steps each from the state in the folder, which
// Job.Round wrote there, and leave what they came to beside it. Job.Round runs
// such a pipeline and averages the two.
func ExampleTrain() {
	p, s := beam.NewPipelineWithRoot()
	job := averaging.Job{Folder: transforms.Path("gs://bucket/model/_training"), InputSize: 1 << 16}
	averaging.Train(s, job, 2, 100, beam.Create(s, 0, 1))
	_ = p // for a runner
}
