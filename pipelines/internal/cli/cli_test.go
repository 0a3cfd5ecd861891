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
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model/kernel"
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

// parse parses args with flags of their own.
func parse(args ...string) (*Flags, error) {
	f := &Flags{FlagSet: flag.NewFlagSet("test", flag.PanicOnError), name: "test", before: map[string]bool{}}
	f.Int("sample", 0, "")
	f.Int64("seed", 0, "")
	f.String("model_uri", "", "")
	f.Float64("share", 0, "")
	f.Bool("worker", false, "")
	f.Duration("timeout", 0, "")
	f.Int("verbosity", 1, "")
	f.String("provision_endpoint", "", "")
	return f, f.Parse(args)
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

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // of the error; "" for none
	}{
		{[]string{"--sample=1"}, ""},
		{[]string{"--bogus=1"}, "there is no flag --bogus; --help lists the flags"},
		{[]string{"--sample=1e3"}, `invalid value "1e3" for flag --sample: it must be a whole number, such as 1000; --help`},
		{[]string{"--seed=1,000"}, `invalid value "1,000" for flag --seed: it must be a whole number, such as 1000; --help`},
		{[]string{"--sample=99999999999999999999"}, `invalid value "99999999999999999999" for flag --sample: value out of range; --help`},
		{[]string{"--share=1,5"}, `invalid value "1,5" for flag --share: it must be a number, such as 0.5; --help`},
		{[]string{"--sample"}, "flag needs an argument: --sample;"},
		{[]string{"--worker=\" for flag -x"}, `invalid boolean value "\" for flag -x" for --worker: it must be true or false;`},
		{[]string{"--timeout=5"}, `invalid value "5" for flag --timeout: a time has a unit, such as 5s, and is 2562047h at most; --help`},
		{[]string{"--timeout=2562048h"}, `invalid value "2562048h" for flag --timeout: a time has a unit, such as 5s, and is 2562047h at most; --help`},
		{[]string{"--timeout=2562047h"}, ""},
		{[]string{"--model_uri="}, "--model_uri is empty; name a folder, or leave it out"},
		{[]string{"--model_uri=m"}, ""},
		{[]string{"--model_uri=~/m"}, "--model_uri=~/m: shells leave ~ as it is behind a = or a comma; write $HOME, or ./~ where"},
		{[]string{"--model_uri=~"}, "--model_uri=~: shells"},
		{[]string{"--model_uri=a,~/m"}, "--model_uri=a,~/m: shells"},
		{[]string{"--model_uri=./~/m"}, ""},
		{[]string{"--model_uri=~m"}, ""},
		{[]string{"file"}, `"file" is no flag; --help lists the flags`},
	} {
		_, err := parse(c.args...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: got %v, want %q", c.args, err, c.want)
		}
		if err != nil && Report(&bytes.Buffer{}, err) != Usage {
			t.Errorf("%q: exit status is not %d", c.args, Usage)
		}
	}
	f, _ := parse("--sample=0", "--worker")
	if !f.Given("sample") || f.Given("bogus") || !f.Worker() {
		t.Errorf("given sample %t, bogus %t; worker %t", f.Given("sample"), f.Given("bogus"), f.Worker())
	}
	f, _ = parse()
	if f.Given("sample") || f.Worker() {
		t.Errorf("without flags: given sample %t; worker %t", f.Given("sample"), f.Worker())
	}
}

// TestHelp has usages that are wider than a terminal of 80 columns, and a word that is.
func TestHelp(t *testing.T) {
	f := &Flags{FlagSet: flag.NewFlagSet("test", flag.PanicOnError), name: "test", summary: "Tests."}
	long := strings.Repeat("x", 90)
	text := strings.Repeat("of a text … ", 5)
	f.Int("a", 7, "`lines` "+text+"taken, "+text+"left")
	f.Bool("b", false, long)
	f.String("c", "", "before "+long+" behind")
	var b bytes.Buffer
	f.help(&b)
	want := `Tests.

Usage: test [flags]

  --a=lines
        lines of a text … of a text … of a text … of a text … of a text … taken,
        of a text … of a text … of a text … of a text … of a text … left
        (default 7)
  --b
        ` + long + `
  --c=string
        before
        ` + long + `
        behind

Exit statuses: 0 done; 1 failed; 2 wrong use.
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestISA wants a mistyped LINNET_ISA refused, except in a worker, and one that
// the machine lacks told.
func TestISA(t *testing.T) {
	t.Setenv("LINNET_ISA", "avx51")
	for _, args := range [][]string{{"--worker"}, {"--provision_endpoint=localhost:1"}} {
		if _, err := parse(args...); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	want := "LINNET_ISA=avx51 is none; it must be one of generic, neon, bfmmla, avx2, madd, avxvnni, avx512, vnni, vnni8, amx24, amx, amx8"
	if _, err := parse(); err == nil || err.Error() != want || Report(&bytes.Buffer{}, err) != Usage {
		t.Errorf("got %v, want %s", err, want)
	}
	lacks := ""
	for _, name := range kernel.Names() {
		if !slices.Contains(kernel.ISAs(), name) {
			lacks = name // NEON or AVX, if nothing else
		}
	}
	for _, c := range []struct {
		name, verbosity string
		told            bool
	}{{"", "1", false}, {kernel.ISA(), "1", false}, {lacks, "1", true}, {lacks, "0", false}} {
		t.Setenv("LINNET_ISA", c.name)
		f, err := parse("--worker", "--verbosity="+c.verbosity)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := f.checkISA(&b); err != nil || (b.String() != "") != c.told || c.told && !strings.HasSuffix(b.String(), "; "+kernel.ISA()+" is used\n") {
			t.Errorf("%+v: %v, told %q", c, err, &b)
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

func TestCheckDevice(t *testing.T) {
	for _, c := range []struct {
		device       string
		size, stride int
		ok           bool
	}{
		{"cpu", -1, 0, true}, {"auto", 0, 0, true}, {"cpu", 80, 40, true}, {"cpu", 80, 80, true},
		{"cuda", -1, 0, gpuinit.Built() == nil}, {"gpu", -1, 0, false}, {"cpu", -2, 0, false}, {"cpu", 80, 81, false}, {"cpu", -1, 5, false}, {"cpu", 0, 5, false}, {"cpu", 80, -1, false},
	} {
		if err := CheckDevice(c.device, false, c.size, c.stride); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestRunJob ends a job's context by SIGTERM, which leaves the job alone, by
// ctrl-C, which reaches it, and not at all.
func TestRunJob(t *testing.T) {
	for _, c := range []struct{ end, want error }{{ErrTerminated, ErrLeft}, {ErrInterrupted, ErrInterrupted}, {nil, nil}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		got, err := RunJob(ctx, true, func(inner context.Context) (int, error) {
			if c.end == nil {
				return 7, nil
			}
			cancel(c.end)
			<-inner.Done() // or the end of RunJob
			return 0, context.Cause(inner)
		})
		cancel(nil)
		if !errors.Is(err, c.want) || c.want == nil && got != 7 {
			t.Errorf("%v: got %d, %v, want %v", c.end, got, err, c.want)
		}
	}
	if _, err := RunJob(t.Context(), true, func(context.Context) (int, error) { panic("no such image") }); err == nil || err.Error() != "no such image" {
		t.Errorf("a panic: got %v", err)
	}
}

func TestChecks(t *testing.T) {
	for level, ok := range map[int]bool{-1: false, 0: true, 3: true, 4: false} {
		if err := CheckVerbosity(level); (err == nil) != ok {
			t.Errorf("--verbosity=%d: %v", level, err)
		}
	}
	for status, ok := range map[int]bool{-1: false, 0: true, 125: true, 126: false} {
		if err := CheckStatus(status); (err == nil) != ok {
			t.Errorf("--rejected_exit_status=%d: %v", status, err)
		}
	}
	for _, c := range []struct {
		precision, device string
		ok                bool
	}{
		{"", "cpu", true}, {"float32", "cpu", true}, {"float16", "cpu", false}, {"", "cuda", true},
		{"float16", "cuda", true}, {"float16", "auto", true}, {"float32", "auto", true}, {"bfloat16", "cuda", false},
	} {
		if err := CheckPrecision(c.precision, c.device); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestBar(t *testing.T) {
	var b bytes.Buffer
	bar := NewBar(2000, 0)
	bar.Set(1, "x") // silent
	bar.out, bar.period = &b, 0
	bar.Set(1000, "fast")
	bar.Set(1000, "fast") // a line says it already
	bar.period = time.Hour
	bar.Set(1500, "too soon")
	bar.Line("a line")
	bar.Close()
	bar.Set(2000, "after the end")
	if got, want := b.String(), "fast\na line\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBarDrawn has bars as on a terminal: of a number of steps, whose share is that
// of the text, and without an end, whose text goes on.
func TestBarDrawn(t *testing.T) {
	for total, shares := range map[int64][]string{0: {"", "", ""}, 50: {" 10%", " 50%", " 90%"}} {
		var b bytes.Buffer
		bar := NewBar(total, 0)
		bar.out, bar.bar, bar.period = &b, draw(&b, total), 100*time.Millisecond
		for i, text := range []string{"5 steps", "25 steps", "45 steps"} {
			time.Sleep(150 * time.Millisecond) // it is not drawn more often
			bar.Set(int64(5+20*i), text)
			at := strings.LastIndex(b.String(), text)
			if last := b.String()[max(at, 0):]; at < 0 || !strings.Contains(last, shares[i]) || total == 0 && strings.Contains(last, "%") {
				t.Errorf("of %d steps: at last %q, want %q and %q", total, last, text, shares[i])
			}
		}
		bar.Close()
	}
}

// TestBarShrinks has a terminal that becomes narrower than the bar: nothing is wider
// than it from then on, blanks included, or every bar would take lines of its own.
func TestBarShrinks(t *testing.T) {
	wide := columns
	t.Cleanup(func() { columns = wide })
	var b bytes.Buffer
	bar := NewBar(50, 0)
	bar.out, bar.bar, bar.period = &b, draw(&b, 50), 0
	for _, c := range []int{80, 40, 40, 20, 20, 80} {
		columns = func() int { return c }
		b.Reset()
		bar.Set(5, "5 of 50 documents, 1,000 lines/s, 10s left")
		for _, piece := range strings.Split(b.String(), "\r") {
			if n := utf8.RuneCountInString(piece); n > c {
				t.Errorf("%d columns: %q takes %d", c, piece, n)
			}
		}
		if !strings.Contains(b.String(), "%") {
			t.Errorf("%d columns: no bar: %q", c, b.String())
		}
	}
}

// TestBarBesideLog has a terminal, where the lines of a log would go into a bar.
func TestBarBesideLog(t *testing.T) {
	is := terminal
	t.Cleanup(func() { terminal = is })
	terminal = func() bool { return true }
	for verbosity, want := range [][2]bool{{false, false}, {true, true}, {true, false}, {true, false}} {
		if bar := NewBar(50, verbosity); (bar.out != nil) != want[0] || (bar.bar != nil) != want[1] {
			t.Errorf("--verbosity=%d: speaks %t, as a bar %t; want %t, %t", verbosity, bar.out != nil, bar.bar != nil, want[0], want[1])
		}
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
