package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/cuda"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/model/modeltest"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
)

// answer is what one worker process found.
type answer struct {
	ID      string   `json:"id"` // of the process, among all machines
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	Driver  string   `json:"driver,omitempty"` // version of NVIDIA's
	CUDA    string   `json:"cuda,omitempty"`   // newest that the driver speaks
	NoGPU   string   `json:"no_gpu,omitempty"` // why none is used, in one line
	Devices []device `json:"devices"`
}

// device is one device of a process and how it computed.
type device struct {
	Kind       string  `json:"kind"` // cpu or cuda
	Index      int     `json:"index"`
	Name       string  `json:"name"`
	UUID       string  `json:"uuid,omitempty"`
	Capability string  `json:"compute_capability,omitempty"`
	Memory     uint64  `json:"memory_bytes,omitempty"`
	Free       uint64  `json:"free_bytes,omitempty"`
	First      float64 `json:"first_launch_us"` // of a matrix product, until it is done
	Tenth      float64 `json:"tenth_launch_us"`
	Error      string  `json:"error,omitempty"`  // why it cannot be used, or what it computes wrongly
	Failed     bool    `json:"failed,omitempty"` // it was to compute, and did not or wrongly
}

// errWrong is what a device that computes wrongly fails with.
var errWrong = errors.New("wrong arithmetic")

// lookAround checks every device of this process. kind is cpu, auto or cuda;
// sharers is how many processes may check a GPU at once.
func lookAround(ctx context.Context, kind string, sharers int) answer {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	a := answer{ID: rand.Text(), Host: host, PID: os.Getpid()}
	onCPU := device{Kind: "cpu", Name: cli.Plural(int64(runtime.GOMAXPROCS(0)), "core") + ", " + kernel.ISA()}
	onCPU.judge(checkCPU(&onCPU))
	a.Devices = append(a.Devices, onCPU)
	if kind == "cpu" {
		return a
	}
	gpus, err := gpuinit.Init(ctx, gpuinit.Options{WorkersPerGPU: sharers})
	if err != nil {
		a.NoGPU = err.Error()
		if m, _ := gpuinit.Probe(ctx); m != nil {
			a.about(m)
			for _, d := range m.Devices {
				if d.Err != nil {
					a.Devices = append(a.Devices, describe(&d))
				}
			}
		}
		return a
	}
	defer gpus.Close()
	a.about(gpus.Machine)
	for _, d := range gpus.Machine.Devices {
		switch i := slices.IndexFunc(gpus.Devices, func(g gpuinit.Device) bool { return g.UUID == d.UUID }); {
		case i >= 0:
			out := describe(&gpus.Devices[i])
			out.judge(checkGPU(&out, gpus.Devices[i]))
			a.Devices = append(a.Devices, out)
		case d.Err != nil && !errors.Is(d.Err, gpuinit.ErrInvisible):
			a.Devices = append(a.Devices, describe(&d))
		}
	}
	return a
}

func (a *answer) about(m *gpuinit.Machine) {
	a.Driver = m.Driver
	if m.CUDA > 0 {
		a.CUDA = fmt.Sprintf("%d.%d", m.CUDA/1000, m.CUDA%1000/10)
	}
}

// gpus is the number of GPUs that compute rightly.
func (a *answer) gpus() (n int) {
	for _, d := range a.Devices {
		if d.Kind == "cuda" && d.Error == "" {
			n++
		}
	}
	return n
}

func describe(d *gpuinit.Device) device {
	out := device{Kind: "cuda", Index: d.Index, Name: d.Name, UUID: d.UUID, Memory: d.Memory, Free: d.Free}
	if d.Major > 0 {
		out.Capability = fmt.Sprintf("%d.%d", d.Major, d.Minor)
	}
	if d.Err != nil {
		out.Error = d.Err.Error()
	}
	return out
}

// judge notes how a check ended.
func (d *device) judge(err error) {
	if err != nil {
		d.Error, d.Failed = err.Error(), true
	}
}

// Sizes of the product, which no vector divides.
const m, k, n = 37, 129, 67

// operands are x, whose sum is 15, and a [m, k] and b [k, n] of small fractions.
func operands() (x, a, b []float32) {
	for i := range 6 {
		x = append(x, float32(i))
	}
	for i := range m * k {
		a = append(a, float32(i*7%31-15)/16)
	}
	for i := range k * n {
		b = append(b, float32(i*5%29-14)/32)
	}
	return x, a, b
}

// product is a·b by the plain loop, in float64.
func product(a, b []float32) []float64 {
	c := make([]float64, m*n)
	for i := range m {
		for j := range n {
			for l := range k {
				c[i*n+j] += float64(a[i*k+l]) * float64(b[l*n+j])
			}
		}
	}
	return c
}

// compareSums says what of a sum and a product is wrong. Numbers of a and b are
// multiples of 1/16 and 1/32 below 1, so that float32 holds every sum exactly; a
// product may be off where operands are rounded.
func compareSums(sum float32, got []float32, want []float64, off float64) error {
	if sum != 15 {
		return fmt.Errorf("%w: the sum of 0 to 5 is %g, not 15", errWrong, sum)
	}
	if len(got) != len(want) {
		return fmt.Errorf("%w: a product of %d numbers, not %d", errWrong, len(got), len(want))
	}
	for i := range want {
		if !(math.Abs(float64(got[i])-want[i]) <= off) {
			return fmt.Errorf("%w: number %d of a matrix product is %g, not %g", errWrong, i, got[i], want[i])
		}
	}
	return nil
}

// checkCPU computes by model/kernel and model/cpu.
func checkCPU(d *device) error {
	x, a, b := operands()
	ones := slices.Repeat([]float32{1}, len(x))
	var sum [1]float32
	kernel.Gemm(1, x, len(x), kernel.Pack(ones, len(x), 1, 1), sum[:], 1, false)
	packed, c := kernel.Pack(b, k, n, n), make([]float32, m*n)
	precision := kernel.Precision()
	want, off := product(a, b), map[string]float64{"int16": 1e-3, "int8": 0.1}[precision]
	for i := range 10 {
		clear(c)
		begin := time.Now()
		kernel.Gemm(m, a, k, packed, c, n, false)
		d.time(i, time.Since(begin))
		if err := compareSums(sum[0], c, want, off); err != nil {
			return err
		}
	}
	w, _ := golden().Model()
	s, err := cpu.New(w)
	if err != nil {
		return err
	}
	tolerance := modeltest.Float32
	if precision == "bfloat16" || precision == "int8" { // by LINNET_ISA
		tolerance = 2e-2
	}
	return checkLSTM(s, tolerance)
}

// checkGPU computes by model/cuda, in float32 and in float16.
func checkGPU(d *device, on gpuinit.Device) error {
	x, a, b := operands()
	got, err := cuda.Check(on, x, a, b, m, k, n, 0)
	if err != nil {
		return err
	}
	d.time(0, got.First)
	d.time(9, got.Tenth)
	if err := compareSums(got.Sum, got.Product, product(a, b), 0); err != nil {
		return err
	}
	if got.Differ {
		return fmt.Errorf("%w: ten launches of one kernel do not agree", errWrong)
	}
	for _, p := range []struct {
		precision string
		tolerance float64
	}{{cuda.Float32, modeltest.Float32}, {cuda.Float16, 2e-3}} {
		w, _ := golden().Model()
		s, err := cuda.New(w, cuda.Options{Devices: []gpuinit.Device{on}, Precision: p.precision})
		if err != nil {
			return err
		}
		if err := checkLSTM(s, p.tolerance); err != nil {
			return fmt.Errorf("%s: %w", p.precision, err)
		}
	}
	return nil
}

func (d *device) time(launch int, took time.Duration) {
	switch us := float64(took) / 1e3; launch {
	case 0:
		d.First = us
	case 9:
		d.Tenth = us
	}
}

// goldenText is a case of testdata/goldens/model.json: two layers of seven
// units, made by numpy in float64.
//
//go:embed golden.json
var goldenText []byte

func golden() *modeltest.Golden {
	var g modeltest.Golden
	if err := json.Unmarshal(goldenText, &g); err != nil {
		panic("gpucheck: golden.json is broken")
	}
	return &g
}

// checkLSTM compares s, made of the golden's weights, with it, and closes s.
func checkLSTM(s model.Scorer, tolerance float64) error {
	defer s.Close()
	g := golden()
	_, batch := g.Model()
	probs := make([]float32, len(g.Probs))
	if err := s.Score(context.Background(), batch, probs); err != nil {
		return err
	}
	for i, want := range g.Probs {
		if !(math.Abs(float64(probs[i])-want) <= tolerance) { // NaN too
			return fmt.Errorf("%w: probability %d of a small LSTM is %g, not %g", errWrong, i, probs[i], want)
		}
	}
	return nil
}
