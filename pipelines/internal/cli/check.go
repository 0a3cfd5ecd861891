package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cuda"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
)

// CheckURI judges the place that a flag names. That it may not be reached is no wrong use.
func CheckURI(name, uri string) error {
	_, err := store.For(context.Background(), uri)
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return Usagef("--%s: %w", name, err)
}

// CheckReport refuses a folder where program would write over files that are none of a
// report of its own, which have that text in them, or a folder or a pipe lies in their
// place. Where they cannot be read, the write that follows says so.
func CheckReport(ctx context.Context, program, folder string, files [][2]string) error {
	for _, f := range files {
		file := store.Join(folder, f[0])
		data, err := store.Read(ctx, file, 0)
		if errors.Is(err, store.ErrNotFile) || err == nil && len(data) > 0 && !bytes.Contains(data, []byte(f[1])) {
			return Usagef("%s is there already, and no run of %s wrote it; choose another --report, or move it away", file, program)
		}
	}
	return nil
}

// Walk is walk, which walks set, and what set tells of it unless silent; it walks again
// where outputs of an earlier run are left out. What matches no document, or two of one
// name, is wrong use.
func Walk(ctx context.Context, set *input.Set, silent bool, walk func() error) error {
	say := func(what string) {
		if !silent {
			fmt.Fprintf(os.Stderr, "linnet: %s\n", what)
		}
	}
	err := walk()
	if earlier := set.LeaveOut(); earlier != "" {
		say(earlier)
		err = walk()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, input.ErrNone), errors.Is(err, input.ErrTwins):
		return Usagef("%w", err)
	case err != nil:
		return err
	}
	for _, passed := range set.Passed() {
		say(passed)
	}
	return nil
}

// LoadModel loads the model in the folder that a flag names.
func LoadModel(ctx context.Context, flag, uri string) (*model.Weights, error) {
	fsys, err := store.Sub(ctx, uri)
	if err != nil {
		return nil, fmt.Errorf("--%s: no model there: %w; name a folder as train writes it", flag, err)
	}
	w, err := model.Load(fsys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", uri, err)
	}
	return w, nil
}

// CheckVerbosity judges --verbosity.
func CheckVerbosity(level int) error {
	if level < 0 || level > 3 {
		return Usagef("--verbosity=%d: it must be from 0 to 3", level)
	}
	return nil
}

// CheckStatus judges --rejected_exit_status.
func CheckStatus(status int) error {
	if status < 0 || status > 125 {
		return Usagef("--rejected_exit_status=%d: it must be from 0 to 125", status)
	}
	return nil
}

// CheckDeviceName judges --device, whatever this build has.
func CheckDeviceName(device string) error {
	if device != "cpu" && device != "auto" && device != "cuda" {
		return Usagef("--device=%s is none; it must be cpu, auto or cuda", device)
	}
	return nil
}

// CheckDevice judges --device, --window_size and --prediction_stride. What this
// build lacks is no matter where the workers are of another.
func CheckDevice(device string, otherBuild bool, windowSize, stride int) error {
	if err := CheckDeviceName(device); err != nil {
		return err
	}
	switch {
	case device == "cuda" && !otherBuild && gpuinit.Built() != nil:
		return Usagef("--device=cuda: %w", gpuinit.Built())
	case windowSize < -1:
		return Usagef("--window_size=%d: it must be 0 or more, or -1", windowSize)
	case stride < 0 || stride > 0 && windowSize <= 0:
		return Usagef("--prediction_stride=%d: it needs a --window_size above 0", stride)
	case stride > max(windowSize, 0):
		return Usagef("--prediction_stride=%d is larger than --window_size=%d, so lines would stay without a label", stride, windowSize)
	}
	return nil
}

// CheckPrecision judges --precision.
func CheckPrecision(precision, device string) error {
	if precision == "" || precision == cuda.Float32 || precision == cuda.Float16 && device != "cpu" {
		return nil
	}
	return Usagef("--precision=%s with --device=%s: it must be float32, or float16 on a GPU", precision, device)
}
