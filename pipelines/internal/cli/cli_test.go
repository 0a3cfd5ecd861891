package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	cases := map[string]struct {
		err    error
		status int
		text   string
	}{
		"nil":            {nil, 0, ""},
		"help":           {flag.ErrHelp, 0, ""},
		"failed":         {errors.New("no disk"), 1, "linnet: no disk\n"},
		"marked already": {errors.New("linnet: no disk"), 1, "linnet: no disk\n"},
		"several lines":  {errors.New("a\nb\r\n\nc"), 1, "linnet: a b c\n"},
		"usage":          {Usagef("--x: %w", errors.New("y")), 2, "linnet: --x: y\n"},
		"wrapped":        {fmt.Errorf("z: %w", Usagef("y")), 2, "linnet: z: y\n"},
		"silent":         {&Status{Code: 3}, 3, ""},
		"status 0":       {&Status{}, 0, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if status := Report(&b, c.err); status != c.status || b.String() != c.text {
				t.Errorf("got %d and %q, want %d and %q", status, b.String(), c.status, c.text)
			}
		})
	}
}

func TestGuard(t *testing.T) {
	err := guard(context.Background(), func(context.Context) error { panic("transforms: Read: bad") })
	if err == nil || err.Error() != "transforms: Read: bad" {
		t.Errorf("a panic becomes %v", err)
	}
}

// What an interrupt cancelled says so, and an error that has more to tell stays.
func TestInterruptedSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrTerminated)
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("store: x: %w", ctx.Err()), "linnet: interrupted by SIGTERM"},
		{fmt.Errorf("%w: 5 documents labelled and kept (%w)", ErrTerminated, ctx.Err()), "linnet: interrupted by SIGTERM: 5 documents labelled and kept (context canceled)"},
		{errors.New("disk full"), "linnet: disk full"},
	} {
		if got := Line(guard(ctx, func(context.Context) error { return c.err })); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestBytes(t *testing.T) {
	for in, want := range map[string]string{"64MiB": "64MiB", "1000000": "977KiB", "2GB": "1.9GiB", "0": "0"} {
		var b Bytes
		if err := b.Set(in); err != nil || b.String() != want {
			t.Errorf("%s: %s, %v; want %s", in, &b, err, want)
		}
	}
	for in, want := range map[string]string{"many": "not a number", "0.8": "not a number", "0.0001KiB": "not a number", "0.0": "", "": "not a number", "8EiBs": "not a number", "4EiB": "", "4611686018427387905": "too large",
		"7EiB": "too large", "8EiB": "too large", "16EiB": "too large", "16.5EiB": "too large", "18446744073709551616": "too large", "1" + strings.Repeat("0", 400): "too large"} {
		var b Bytes
		if err := b.Set(in); (want == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", in, err, want)
		}
	}
}

func TestLinesArePrintable(t *testing.T) {
	err := errors.New("a\nb\x1b[31m\u0085ü\x00caf\xe9�.txt")
	if got, want := Line(err), `linnet: a b\x1b[31m\x85ü\x00caf\xe9�.txt`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A warning is one line, whatever a file's name holds, and a terminal obeys none of it.
func TestWarningsArePrintable(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	os.Stderr = file
	Warnf("%s: 100 %% of it", "a\x1b[31m\nb.txt")
	got, err := os.ReadFile(file.Name())
	if want := "linnet: warning: a\\x1b[31m b.txt: 100 % of it\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// A commit that was changed is not called by its name alone.
func TestCommit(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "c0967b0fca16"}
	for name, c := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		"go run":        {"(devel)", nil, ""},
		"go test":       {"", nil, ""},
		"a commit":      {"v0.0.0-20261128230350-c0967b0fca16", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}, "c0967b0fca16"},
		"and changes":   {"v1.2.0+dirty", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}, "c0967b0fca16+dirty"},
		"go install @…": {"v1.2.0", nil, "v1.2.0"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings}
		if got := commit(info); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
