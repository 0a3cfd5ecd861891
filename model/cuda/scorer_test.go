//go:build cuda && cgo

package cuda

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorgonia.org/cu"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/modeltest"
)

// These tests run on a GPU, or on the driver that stands in for one
// (scripts/standin), whichever libcuda.so.1 is found.

// float16 is what products in float16 may differ from the goldens, in
// probability.
const float16 = 2e-3

// patience is for kernels on a CPU that others use as well.
const patience = 10 * time.Hour

// gpus are those of the process.
var gpus = sync.OnceValues(func() (*gpuinit.GPUs, error) {
	return gpuinit.Init(context.Background(), gpuinit.Options{})
})

func devices(t testing.TB) []gpuinit.Device {
	t.Helper()
	gpus, err := gpus()
	if err != nil {
		if os.Getenv("LINNET_GPU") == "required" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return gpus.Devices
}

func open(t testing.TB, w *model.Weights, o Options) *Scorer {
	t.Helper()
	o.Devices = devices(t)
	o.Timeout = patience
	s, err := New(w, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFloat32(t *testing.T) {
	devices := devices(t)
	modeltest.Run(t, modeltest.Float32, func(w *model.Weights) (model.Scorer, error) {
		return New(w, Options{Devices: devices, Precision: Float32, Timeout: patience})
	})
}

func TestFloat16(t *testing.T) {
	devices := devices(t)
	modeltest.Run(t, float16, func(w *model.Weights) (model.Scorer, error) {
		return New(w, Options{Devices: devices, Timeout: patience})
	})
}

// TestSizes holds both precisions to package cpu, which passes modeltest, over
// sizes of which any two values meet.
func TestSizes(t *testing.T) {
	lengths := []struct {
		name string
		of   func(i, n, most int) int // of window i of n, most on average
	}{
		{"equal", func(_, _, most int) int { return most }},
		{"ragged", func(i, n, most int) int { return 1 + (2*most-1)*(i*7919%n)/n }},
		{"one long", func(i, n, most int) int { return 1 + (most-1)*n*max(0, 1-i) }},
	}
	for i, hidden := range []int{32, 96, 128, 256, 512} {
		for j, windows := range []int{1, 16, 17, 64, 300} {
			layers, length := 1+(i+j)%3, lengths[(i+2*j)%3]
			t.Run(fmt.Sprintf("hidden %d layers %d windows %d %s", hidden, layers, windows, length.name), func(t *testing.T) {
				steps := min(1200, 12_000_000/(hidden*hidden*layers))                                              // or the emulation takes minutes
				w := modeltest.Weights(modeltest.Config(300, 64, 5, hidden, layers, 3, 9+30*(j%2)), uint32(5*i+j)) // one tile of columns, or two
				var all []model.ContextWindow
				lines := 0
				for k := range windows {
					n := length.of(k, windows, max(1, steps/windows))
					all = append(all, model.ContextWindow{First: lines, Len: n})
					lines += n
				}
				if lines > 2000 {
					t.Fatalf("%d lines", lines)
				}
				b := modeltest.Batch(w.Config, 1, lines, all)
				reference, err := cpu.New(w)
				if err != nil {
					t.Fatal(err)
				}
				want := make([]float32, lines*w.Config.NumOutputs())
				if err := reference.Score(t.Context(), b, want); err != nil {
					t.Fatal(err)
				}
				for precision, tolerance := range map[string]float64{Float16: float16, Float32: modeltest.Float32} {
					got := make([]float32, len(want))
					if err := open(t, w, Options{Precision: precision}).Score(t.Context(), b, got); err != nil {
						t.Fatal(err)
					}
					worst := 0.0
					for k := range got {
						worst = max(worst, math.Abs(float64(got[k]-want[k])))
						if got[k] != got[k] {
							worst = math.Inf(1)
						}
					}
					t.Logf("%s: %d lines, largest difference %.1e", precision, lines, worst)
					if !(worst <= tolerance) {
						t.Errorf("%s: probabilities differ by %g, want %g at most", precision, worst, tolerance)
					}
				}
			})
		}
	}
}

// TestBlocks has the kernels of large blocks and those of small ones, which a card
// takes by how many processors it has, give the same bits, whatever card this is.
func TestBlocks(t *testing.T) {
	for _, hidden := range []int{40, 96, 128, 136} {
		w := modeltest.Weights(modeltest.Config(300, 16, 5, hidden, 2, 3, 9), 1)
		var windows []model.ContextWindow
		for i := range 150 {
			windows = append(windows, model.ContextWindow{First: i, Len: 1 + i*7919%4})
		}
		b := modeltest.Batch(w.Config, 1, 153, windows)
		for _, precision := range []string{Float16, Float32} {
			s := open(t, w, Options{Precision: precision})
			var all [2][]float32
			for i, processors := range []int{1, 1 << 20} {
				for _, c := range s.cards {
					c.processors = processors
				}
				all[i] = make([]float32, b.NumSteps()*12)
				if err := s.Score(t.Context(), b, all[i]); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(all[0], all[1]) {
				t.Errorf("hidden %d, %s: other bits in large blocks", hidden, precision)
			}
		}
	}
}

// TestBits scores twice, also with other windows beside, and prints a hash for
// whoever compares processes.
func TestBits(t *testing.T) {
	w := modeltest.Weights(modeltest.Config(300, 64, 5, 96, 2, 3, 9), 1)
	b := modeltest.Batch(w.Config, 1, 90, []model.ContextWindow{{Len: 60}, {First: 60, Len: 30}})
	for _, precision := range []string{Float16, Float32} {
		s := open(t, w, Options{Precision: precision})
		var all [2][]float32
		for i := range all {
			all[i] = make([]float32, b.NumSteps()*12)
			if err := s.Score(t.Context(), b, all[i]); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(all[0], all[1]) {
			t.Errorf("%s: other bits the second time", precision)
		}
		t.Logf("%s: sha256 %x", precision, sha256.Sum256(bytesOf(all[0])))
	}
}

// TestMemory scores with less and less memory: what does not fit says so, what
// fits has the same bits, and Close gives everything back.
func TestMemory(t *testing.T) {
	w := modeltest.Weights(modeltest.Config(100, 16, 5, 40, 2, 3, 0), 1)
	var windows []model.ContextWindow
	for i := range 40 {
		windows = append(windows, model.ContextWindow{First: i * 10, Len: 10})
	}
	b := modeltest.Batch(w.Config, 1, 400, windows)
	before := freeMemory(t, w)
	free := open(t, w, Options{})
	want := make([]float32, b.NumSteps()*3)
	if err := free.Score(t.Context(), b, want); err != nil {
		t.Fatal(err)
	}

	// Room for ten windows, and then for none.
	var p plan
	ten := *b
	ten.Windows = windows[:10]
	if err := p.lay(&free.sizes, free.rows, []*model.Batch{&ten}, want[:300]); err != nil {
		t.Fatal(err)
	}
	c := opened(t, w)
	weights := c.used
	need := int64(p.parts(&c.sizes).total)
	c.close()
	s := open(t, w, Options{MemoryLimit: weights + need})
	for n := 40; n >= 5; n /= 2 {
		part := *b
		part.Windows = windows[:n]
		got := make([]float32, part.NumSteps()*3)
		err := s.Score(t.Context(), &part, got)
		switch {
		case n > 10:
			if !errors.Is(err, model.ErrOutOfMemory) {
				t.Errorf("%d windows: %v, want %v", n, err, model.ErrOutOfMemory)
			}
		case err != nil:
			t.Errorf("%d windows: %v", n, err)
		case !slices.Equal(got, want[:len(got)]):
			t.Errorf("%d windows: other probabilities than with memory to spare", n)
		}
	}
	one := *b
	one.Windows = []model.ContextWindow{{Len: 400}}
	err := s.Score(t.Context(), &one, make([]float32, 1200))
	if !errors.Is(err, model.ErrOutOfMemory) {
		t.Fatalf("one window of 400 lines: %v, want %v", err, model.ErrOutOfMemory)
	}
	if ok, _ := regexp.MatchString(`^model: out of memory: GPU 0: a batch of 1 window of at most 400 lines takes .*free, other processes hold .*, gpu_memory_limit is .*; lower prediction_batch_size, then window_size, .*hidden_size`, err.Error()); !ok {
		t.Errorf("one window of 400 lines: %v", err)
	}
	if err := (&card{watchdog: newWatchdog()}).failure("making a context", cu.OutOfMemory); !errors.Is(err, model.ErrOutOfMemory) || !strings.Contains(err.Error(), "; end what holds its memory") {
		t.Errorf("%v, want what to do about it", err)
	}
	if _, err := New(w, Options{Devices: devices(t), MemoryLimit: 1000}); !errors.Is(err, model.ErrOutOfMemory) {
		t.Errorf("New with 1,000 bytes: %v, want %v", err, model.ErrOutOfMemory)
	}
	if now := freeMemory(t, w); now >= before {
		t.Errorf("%d bytes are free beside two Scorers that work, %d without them", now, before)
	}
	s.Close()
	free.Close()
	if now := freeMemory(t, w); now != before && os.Getenv("STANDIN_KERNELS") != "" { // elsewhere others use the device too
		t.Errorf("%d bytes are free after Close, %d before New", now, before)
	}
}

// TestContextMemory counts what a card's own context takes, whatever the driver
// keeps for itself and others took since Init.
func TestContextMemory(t *testing.T) {
	if !standIn(t, "STANDIN_DEVICES=1", "STANDIN_RESERVED=500000000", "STANDIN_CONTEXT=300000000") {
		return
	}
	w, _ := small()
	for i := range 2 {
		c := opened(t, w)
		defer c.close()
		if d := c.device; d.Memory != 4<<30 || c.used < 300000000 || c.used > 301000000 {
			t.Errorf("card %d of %d bytes: %d in use, want 300 MB and the weights", i, d.Memory, c.used)
		}
	}
}

// opened is the first device with the weights w on it.
func opened(t *testing.T, w *model.Weights) *card {
	t.Helper()
	c := &card{watchdog: newWatchdog(), device: devices(t)[0]}
	if err := c.open(w, true); err != nil {
		t.Fatal(err)
	}
	return c
}

// freeMemory is what is free of the first device beside the weights w, in bytes.
func freeMemory(t *testing.T, w *model.Weights) int64 {
	t.Helper()
	c := opened(t, w)
	defer c.close()
	free, _, err := cu.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// TestOverlap wants a batch to be on its way while another is computed.
func TestOverlap(t *testing.T) {
	log := standInLog(t)
	if !standIn(t, "STANDIN_DEVICES=1", "STANDIN_LOG="+log) {
		return
	}
	w, b := small()
	s := open(t, w, Options{})
	want := make([]float32, 240)
	if err := s.Score(t.Context(), b, want); err != nil {
		t.Fatal(err)
	}
	for _, err := range score(t, s, b, want, 40) {
		if err != nil {
			t.Error(err)
		}
	}
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(calls, []byte("cuStreamCreate")); n != slots {
		t.Errorf("%d streams, want %d", n, slots)
	}
	waiting, together := 0, 0
	for call := range strings.Lines(string(calls)) {
		switch {
		case strings.Contains(call, "cuMemcpyHtoDAsync"):
			if waiting++; waiting > 1 {
				together++
			}
		case strings.Contains(call, "cuMemcpyDtoHAsync"):
			waiting--
		}
	}
	if together < 10 {
		t.Errorf("%d batches of 41 were given while another was computed, want 10 and more", together)
	}
}

// TestLocked wants page-locked memory for plans that are used again, as much as they
// need, all of it given back by Close; and the same bits where there is none.
func TestLocked(t *testing.T) {
	for name, fail := range map[string]string{"there": "", "none": "cuMemHostAlloc:2"} {
		t.Run(name, func(t *testing.T) {
			log := standInLog(t)
			if !standIn(t, "STANDIN_DEVICES=1", "STANDIN_LOG="+log, "STANDIN_FAIL="+fail) {
				return
			}
			w, b := small()
			s := open(t, w, Options{})
			long := modeltest.Batch(w.Config, 1, 600, []model.ContextWindow{{Len: 600}})
			for _, b := range []*model.Batch{b, long, b} {
				want := make([]float32, b.NumSteps()*3)
				if err := s.Score(t.Context(), b, want); err != nil { // by a plan of too little memory
					t.Fatal(err)
				}
				for range 2 * plans { // all plans, and again
					got := make([]float32, len(want))
					if err := s.Score(t.Context(), b, got); err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(got, want) {
						t.Fatal("other probabilities than those before")
					}
				}
			}
			taken := 2 * plans // for the small batch, and for the long one
			if name == "none" {
				taken = 0
			}
			s.Close()
			calls, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			asked, freed := bytes.Count(calls, []byte("cuMemHostAlloc")), bytes.Count(calls, []byte("cuMemFreeHost"))
			if asked != max(taken, 1) || freed != taken {
				t.Errorf("page-locked memory was asked for %d times and given back %d times, want %d and %d", asked, freed, max(taken, 1), taken)
			}
			for _, p := range s.cards[0].plans {
				if p.locked != nil {
					t.Error("a plan holds page-locked memory after Close")
				}
			}
		})
	}
}

// TestKept has a plan let go of what a very large batch took, and keep the rest.
func TestKept(t *testing.T) {
	w, _ := small()
	c := opened(t, w)
	defer c.close()
	p := &plan{card: c, memory: make([]uint32, 10)}
	defer c.unlock(p)
	c.lock(p)
	if n := cap(p.memory); !p.isLocked() || n < 10 {
		t.Errorf("%d numbers, page-locked %t; want 10 and more that are", n, p.isLocked())
	}
	p.memory = make([]uint32, maxKept+1)
	c.lock(p)
	if n := cap(p.memory); !p.isLocked() || n > maxKept {
		t.Errorf("%d numbers, page-locked %t; want those from before", n, p.isLocked())
	}
}

// TestClosed has a call after Close fail.
func TestClosed(t *testing.T) {
	w, b := small()
	s := open(t, w, Options{})
	s.Close()
	if err := s.Score(t.Context(), b, make([]float32, 240)); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("%v, want an error", err)
	}
}

// standIn runs the test again in a process of its own on a machine that is made
// up by settings, and tells whether it is that process.
func standIn(t *testing.T, settings ...string) bool {
	t.Helper()
	if os.Getenv("LINNET_IN_TEST") == t.Name() {
		return true
	}
	if os.Getenv("STANDIN_KERNELS") == "" {
		t.Skip(`no driver that stands in: eval "$(scripts/standin)" makes one`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") }) // gpuinit's, of this process
	cmd.Env = append(append(inherited, "LINNET_IN_TEST="+t.Name(), "LINNET_GPU=required", "TMPDIR="+t.TempDir()), settings...)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v: %v\n%s", settings, err, out)
	}
	return false
}

// standInLog is the file that STANDIN_LOG is to name, in both processes.
func standInLog(t *testing.T) string {
	return cmp.Or(os.Getenv("STANDIN_LOG"), filepath.Join(t.TempDir(), "log"))
}

// score scores b many times at once and returns the errors, nil ones too.
func score(t *testing.T, s *Scorer, b *model.Batch, want []float32, times int) (errs []error) {
	t.Helper()
	var mu sync.Mutex
	var wait sync.WaitGroup
	for range times {
		wait.Go(func() {
			got := make([]float32, len(want))
			err := s.Score(t.Context(), b, got)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			if err == nil && !slices.Equal(got, want) {
				t.Error("other probabilities than alone")
			}
		})
	}
	wait.Wait()
	return errs
}

// small is a model and a batch with 240 probabilities.
func small() (*model.Weights, *model.Batch) {
	w := modeltest.Weights(modeltest.Config(100, 16, 5, 20, 1, 3, 0), 1)
	return w, modeltest.Batch(w.Config, 1, 60, []model.ContextWindow{{Len: 60}, {First: 7, Len: 20}})
}

// TestLost loses the only device: every call ends, with ErrDeviceLost from then on.
func TestLost(t *testing.T) {
	if !standIn(t, "STANDIN_DEVICES=1", "STANDIN_LOSE=30") {
		return
	}
	w, b := small()
	s := open(t, w, Options{})
	want := make([]float32, 240)
	if err := s.Score(t.Context(), b, want); err != nil {
		t.Fatal(err)
	}
	errs := score(t, s, b, want, 40)
	good := 0
	for _, err := range errs {
		if err == nil {
			good++
		} else if !errors.Is(err, model.ErrDeviceLost) {
			t.Errorf("%v, want %v", err, model.ErrDeviceLost)
		}
	}
	if good == 0 || good == len(errs) {
		t.Errorf("%d of %d calls were well, want some", good, len(errs))
	}
	if err := s.Score(t.Context(), b, want); !errors.Is(err, model.ErrDeviceLost) {
		t.Errorf("later: %v, want %v", err, model.ErrDeviceLost)
	}
	select {
	case <-s.cards[0].over:
	case <-time.After(time.Minute):
		t.Error("the card that was lost is not closed; the Scorer may be used for its others")
	}
}

// TestNoAnswer has a driver that cannot say what a batch came to, for want of memory:
// the device is lost then, and no smaller batch would help.
func TestNoAnswer(t *testing.T) {
	for _, fail := range []string{"cuMemcpyDtoHAsync_v2:2", "cuStreamSynchronize:2"} {
		t.Run(fail, func(t *testing.T) {
			if !standIn(t, "STANDIN_DEVICES=1", "STANDIN_FAIL="+fail) {
				return
			}
			w, b := small()
			s := open(t, w, Options{})
			for range 2 { // by the card, and without it
				if err := s.Score(t.Context(), b, make([]float32, 240)); !errors.Is(err, model.ErrDeviceLost) || errors.Is(err, model.ErrOutOfMemory) || !strings.Contains(err.Error(), "out of memory; end what holds") {
					t.Errorf("%v, want %v and why", err, model.ErrDeviceLost)
				}
			}
		})
	}
}

// TestHangs has a driver that does not come back from a call, or late: whoever
// waits for the device is told that it is lost, and a call that comes back
// writes nowhere.
func TestHangs(t *testing.T) {
	for _, hang := range []string{"cuModuleLoadData", "cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuStreamSynchronize", "cuMemHostAlloc", "cuMemcpyDtoHAsync_v2:4"} {
		t.Run(hang, func(t *testing.T) {
			if !standIn(t, "STANDIN_DEVICES=1", "STANDIN_HANG="+hang) {
				return
			}
			w, b := small()
			lost := func(err error) {
				t.Helper()
				if !errors.Is(err, model.ErrDeviceLost) || !errors.Is(err, gpuinit.ErrHangs) || !strings.Contains(err.Error(), "GPU 0 (Stand-in GPU): gpuinit: the NVIDIA driver does not answer (") {
					t.Errorf("%v, want a driver that does not answer", err)
				}
			}
			if hang == "cuModuleLoadData" {
				_, err := New(w, Options{Devices: devices(t), Timeout: time.Second})
				lost(err)
				return
			}
			s := open(t, w, Options{})
			go s.watch(time.Second) // who started may have taken longer
			var all sync.WaitGroup
			probs := make([][]float32, 5)
			for i := range probs {
				probs[i] = make([]float32, 240)
				all.Go(func() { lost(s.Score(t.Context(), b, probs[i])) })
			}
			all.Wait()
			lost(s.Score(t.Context(), b, probs[0]))
			s.mu.Lock()
			if s.alive != 0 {
				t.Errorf("%d cards are alive", s.alive)
			}
			s.mu.Unlock()
			s.Close()
			if strings.Contains(hang, ":") {
				time.Sleep(5 * time.Second)
			}
			for i := range probs {
				if !slices.Equal(probs[i], make([]float32, 240)) {
					t.Errorf("probabilities of a lost call: %v", probs[i][:4])
				}
			}
		})
	}
}

// TestLateAnswer has a driver that answers just after its card was given up: why
// that was is what calls are told, and not that it came back.
func TestLateAnswer(t *testing.T) {
	if !standIn(t, "STANDIN_DEVICES=1", "STANDIN_HANG=cuMemcpyDtoHAsync_v2:2") {
		return
	}
	w, b := small()
	s := open(t, w, Options{})
	scored := make(chan error)
	go func() { scored <- s.Score(t.Context(), b, make([]float32, 240)) }()
	c := s.cards[0]
	var why error
	for ; why == nil; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		waits := c.inside && c.doing == "waiting for a batch"
		c.mu.Unlock()
		if waits {
			why, _ = c.giveUp(&c.device, time.Second)
		}
	}
	time.Sleep(3 * time.Second) // the driver answers meanwhile
	s.lose(c, why)
	if err := <-scored; err != why {
		t.Errorf("%v, want %v", err, why)
	}
}

// TestCheckHangs has Check not wait for ever.
func TestCheckHangs(t *testing.T) {
	if !standIn(t, "STANDIN_DEVICES=1", "STANDIN_HANG=cuCtxCreate_v2") {
		return
	}
	one := []float32{1}
	if _, err := Check(devices(t)[0], one, one, one, 1, 1, 1, time.Second); !errors.Is(err, gpuinit.ErrHangs) {
		t.Errorf("%v, want a driver that does not answer", err)
	}
}

// TestTwoCards uses both cards at once, and the one that is left when the
// other is lost: no call fails.
func TestTwoCards(t *testing.T) {
	for name, lose := range map[string]string{"both": "1000000:1", "one lost": "30:1"} {
		t.Run(name, func(t *testing.T) {
			if !standIn(t, "STANDIN_DEVICES=2", "STANDIN_LOSE="+lose) {
				return
			}
			w, b := small()
			var told []string
			s := open(t, w, Options{Log: func(_ int, format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }})
			if n := len(devices(t)); n != 2 {
				t.Fatalf("%d devices, want 2", n)
			}
			want := make([]float32, 240)
			if err := s.Score(t.Context(), b, want); err != nil {
				t.Fatal(err)
			}
			for _, err := range score(t, s, b, want, 80) {
				if err != nil {
					t.Error(err)
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if left := map[string]int{"both": 2, "one lost": 1}[name]; s.alive != left {
				t.Errorf("%d cards are left, want %d", s.alive, left)
			}
			if name == "both" && len(told) > 0 || name == "one lost" && (len(told) != 1 || !strings.Contains(told[0], "device lost: GPU 1 ") || !strings.HasSuffix(told[0], "; going on without it")) {
				t.Errorf("told %q", told)
			}
		})
	}
}

// TestFullCard has a window that finds no room on one card scored by the other, which has
// more to do meanwhile; and fail where neither has room, or the other is lost.
func TestFullCard(t *testing.T) {
	for name, lose := range map[string]string{"one": "1000000:1", "one, and one lost": "60:1", "both": "1000000:1"} {
		t.Run(name, func(t *testing.T) {
			if !standIn(t, "STANDIN_DEVICES=2", "STANDIN_LOSE="+lose) {
				return
			}
			w, b := small()
			b.Windows = b.Windows[:1]
			want := make([]float32, b.NumSteps()*3)
			first := open(t, w, Options{})
			if err := first.Score(t.Context(), b, want); err != nil {
				t.Fatal(err)
			}
			s := open(t, w, Options{})
			for i, c := range s.cards {
				if i == 0 || name == "both" {
					c.limit = 1
				}
			}
			errs := score(t, s, b, want, 80)
			for _, err := range errs {
				if err != nil && (name == "one" || !errors.Is(err, model.ErrOutOfMemory)) {
					t.Error(err)
				}
			}
			if failed := slices.ContainsFunc(errs, func(err error) bool { return err != nil }); failed != (name != "one") {
				t.Errorf("calls failed: %t", failed)
			}
		})
	}
}
