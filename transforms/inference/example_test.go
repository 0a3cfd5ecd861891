package inference_test

import (
	"context"
	"fmt"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	//lint:ignore SA1019 it needs no server, and the output comes in order
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/direct"

	"github.com/linnet-ml/linnet/transforms/inference"
)

// Celsius says which model: its fields travel to the workers.
type Celsius struct{ Offset float64 }

func (c Celsius) Load(context.Context) (inference.Handler[float64, float64], error) {
	return thermometer{c.Offset}, nil
}

// thermometer is the model, loaded.
type thermometer struct{ offset float64 }

func (t thermometer) Run(_ context.Context, fahrenheit []float64) ([]float64, error) {
	celsius := make([]float64, len(fahrenheit))
	for i, f := range fahrenheit {
		celsius[i] = (f-32)/1.8 + t.offset
	}
	return celsius, nil
}

func (thermometer) Weight(float64) int64 { return 1 }
func (thermometer) Close() error         { return nil }

func printPair(f, c float64) { fmt.Printf("%g °F is %g °C\n", f, c) }

func init() {
	inference.Register[float64, float64, Celsius]()
	beam.RegisterFunction(printPair)
}

func ExampleRunInference() {
	p, s := beam.NewPipelineWithRoot()
	degrees := beam.Create(s, 32.0, 212.0, -40.0)
	results, _ := inference.RunInference[float64, float64](s, Celsius{}, inference.Options{MaxBatchSize: 64}, degrees)
	beam.ParDo0(s, printPair, results)
	if _, err := beam.Run(context.Background(), "direct", p); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// 32 °F is 0 °C
	// 212 °F is 100 °C
	// -40 °F is -40 °C
}
