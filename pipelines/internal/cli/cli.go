// Package cli holds what the pipelines' mains share: flags, exit statuses,
// errors of one line, signals and progress.
//
// Exit statuses are 0 done, 1 failed, 2 wrong use, and what Status says. An
// error is one line on standard error that begins "linnet: ".
package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cuda"
	"github.com/linnet-ml/linnet/model/kernel"
	_ "github.com/linnet-ml/linnet/pipelines/internal/cli/nobody" // initialised before Beam
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
)

// Exit statuses.
const (
	Failed = 1
	Usage  = 2
)

// Status is an error that ends the program with a status of its own.
type Status struct {
	Code int
	Err  error // told in one line; nil says nothing
}

func (s *Status) Error() string {
	if s.Err == nil {
		return fmt.Sprintf("exit status %d", s.Code)
	}
	return s.Err.Error()
}

func (s *Status) Unwrap() error { return s.Err }

// Usagef is an error of wrong use.
func Usagef(format string, args ...any) error {
	return &Status{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// verbosity is --verbosity, 1 where there is no such flag.
func verbosity(f *flag.FlagSet) int {
	if g := f.Lookup("verbosity"); g != nil {
		return g.Value.(flag.Getter).Get().(int)
	}
	return 1
}

// Main runs a pipeline's main function and exits with its status. It turns a
// panic into one line, too.
func Main(run func(ctx context.Context) error) {
	ctx, stop := interruptible()
	err := guard(ctx, run)
	stop()
	os.Exit(Report(os.Stderr, err))
}

func guard(ctx context.Context, run func(ctx context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if verbosity(flag.CommandLine) >= 2 {
				debug.PrintStack()
			}
			err = fmt.Errorf("%v", p)
		}
	}()
	err = run(ctx)
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && errors.Is(cause, ErrInterrupted) && !errors.Is(err, ErrInterrupted) {
		err = cause // which tells more than that some call was cancelled
	}
	return err
}

// Report writes err's line to w and returns the exit status.
func Report(w io.Writer, err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if s, ok := errors.AsType[*Status](err); ok {
		if s.Err != nil {
			fmt.Fprintln(w, Line(err))
		}
		return s.Code
	}
	fmt.Fprintln(w, Line(err))
	return Failed
}

// Line is err as one line that begins "linnet: ".
func Line(err error) string {
	text := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	return "linnet: " + Printable(strings.TrimPrefix(text, "linnet: "))
}

// Printable is text with control characters and bytes that are no UTF-8, which a file's
// name may hold, escaped: a terminal would obey the ones, and Airflow fails at the others.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	var b strings.Builder
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case unicode.IsControl(r):
			fmt.Fprintf(&b, "\\x%02x", r)
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, "\\x%02x", text[0])
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

// Causes of a context that interruptible's signals ended. ErrTerminated wraps
// ErrInterrupted.
var (
	ErrInterrupted = errors.New("interrupted")
	ErrTerminated  = fmt.Errorf("%w by SIGTERM", ErrInterrupted)
)

// grace is how long a program has to end after SIGTERM: those who send it, such
// as a batch system or a cloud that takes a machine back, often kill after 10 s.
const grace = 9 * time.Second

// echo is how soon after the first signal another is taken for the same one: timeout(1)
// signals the program and its process group, and a script may pass on what a terminal
// or a batch system sent to the script and the program.
var echo = 200 * time.Millisecond // a test has another

// interruptible returns a context that the first SIGINT or SIGTERM ends, with
// the cause ErrInterrupted or ErrTerminated; the second ends the program at once,
// and so does the end of 9 s after SIGTERM.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var first time.Time
		for s := range signals {
			if !first.IsZero() {
				if time.Since(first) < echo {
					continue
				}
				fmt.Fprintln(os.Stderr, "\nlinnet: interrupted twice, ended at once")
				os.Exit(Failed)
			}
			first = time.Now()
			if s != syscall.SIGTERM {
				cancel(ErrInterrupted)
				continue
			}
			cancel(ErrTerminated)
			time.AfterFunc(grace, func() {
				fmt.Fprintf(os.Stderr, "linnet: %v, and not through after %v; what is done is kept, run again to go on, train with --resume\n", ErrTerminated, grace)
				os.Exit(Failed)
			})
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// ErrLeft says that a job elsewhere goes on without this program.
var ErrLeft = fmt.Errorf("%w: the job goes on without this program (--cancel_on_exit would cancel it)", ErrTerminated)

// CancelOnExit adds the flag --cancel_on_exit, for RunJob.
func (f *Flags) CancelOnExit(p *bool) {
	f.BoolVar(p, "cancel_on_exit", false, "cancel a job elsewhere at SIGTERM, too, and not only at ctrl-C")
}

// RunJob is run(ctx). With leave, which is for a job elsewhere, it returns ErrLeft
// at SIGTERM and leaves the job alone, for who sends it may want the launcher's
// machine and not the job's end; any other end of ctx ends the context of run.
func RunJob[T any](ctx context.Context, leave bool, run func(context.Context) (T, error)) (T, error) {
	if !leave {
		return run(ctx)
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	left := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrTerminated) {
			close(left)
		} else {
			cancel(context.Cause(ctx))
		}
	})()
	type ran struct {
		result T
		err    error
	}
	over := make(chan ran, 1)
	go func() {
		var r ran
		r.err = guard(inner, func(ctx context.Context) (err error) {
			r.result, err = run(ctx)
			return err
		})
		over <- r
	}()
	select {
	case r := <-over:
		return r.result, r.err
	case <-left:
		var none T
		return none, ErrLeft
	}
}

// Strings is a flag that may be repeated.
type Strings []string

func (s *Strings) String() string     { return strings.Join(*s, ",") }
func (s *Strings) Set(v string) error { *s = append(*s, v); return nil }

// Flags are the flags of one pipeline. They stand on the command line beside
// those that Beam's packages put there; only the pipeline's own, and a few
// of those, are shown by --help.
type Flags struct {
	*flag.FlagSet
	name, summary string
	before        map[string]bool // flags of the libraries
	show          []string        // of these, those that --help shows
}

// NewFlags begins the flags of a pipeline; summary is what --help says first.
func NewFlags(name, summary string, show ...string) *Flags {
	f := &Flags{FlagSet: flag.CommandLine, name: name, summary: summary, before: map[string]bool{}, show: show}
	f.VisitAll(func(g *flag.Flag) { f.before[g.Name] = true })
	if !f.before["labels"] {
		// Airflow's operator passes this one to every pipeline.
		f.String("labels", "", "labels of the job, as JSON (Dataflow)")
		f.before["labels"] = true
	}
	return f
}

// badValue is an error of package flag about a value, up to its end or its reason.
var badValue = regexp.MustCompile(`^(invalid (?:boolean )?value "(?:[^"\\]|\\.)*" for (?:flag )?|flag needs an argument: )-(\w+)(: parse error)?`)

// reword has the flag in an error of package flag with two dashes, and says what it
// takes.
func (f *Flags) reword(text string) string {
	m := badValue.FindStringSubmatch(text)
	if m == nil {
		return strings.Replace(text, "flag provided but not defined: -", "there is no flag --", 1)
	}
	invalid, reason := m[1], m[3]
	var value any
	if g, ok := f.Lookup(m[2]).Value.(flag.Getter); ok {
		value = g.Get()
	}
	if _, ok := value.(bool); !ok { // it may be one that can stand alone
		invalid = strings.Replace(invalid, "invalid boolean value", "invalid value", 1)
	}
	if reason != "" {
		switch value.(type) {
		case time.Duration:
			reason = ": a time has a unit, such as 5s, and is 2562047h at most"
		case int, int64, uint, uint64:
			reason = ": it must be a whole number, such as 1000"
		case float64:
			reason = ": it must be a number, such as 0.5"
		case bool:
			reason = ": it must be true or false"
		}
	}
	return invalid + "--" + m[2] + reason + text[len(m[0]):]
}

// Parse parses args, and judges LINNET_ISA; an error is one of wrong use, or
// flag.ErrHelp after --help.
func (f *Flags) Parse(args []string) error {
	f.Init(f.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	err := f.FlagSet.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.help(os.Stdout)
		return err
	case err != nil:
		return Usagef("%s; --help lists the flags", f.reword(err.Error()))
	}
	f.Visit(func(g *flag.Flag) { // JSON and prose have quotation marks, a path of Windows never
		if v := g.Value.String(); runtime.GOOS == "windows" && strings.Contains(v, `"`) && strings.Contains(v, `\`) && !strings.Contains(v, "{") {
			err = Usagef(`--%s=%s: Windows takes \" for a quotation mark in the value; leave out the \ at a path's end`, g.Name, v)
		}
	})
	if err != nil {
		return err
	}
	if f.NArg() > 0 {
		what := "--help lists the flags"
		if f.Lookup("input") != nil {
			what = "input is named by --input, and a pattern stands in quotes"
		}
		return Usagef("%q is no flag; %s", f.Arg(0), what)
	}
	f.Visit(func(g *flag.Flag) {
		if v := g.Value.String(); g.Name != "description" && strings.Contains(","+v+"/", ",~/") {
			err = Usagef("--%s=%s: shells leave ~ as it is behind a = or a comma; write $HOME, or ./~ where that is a folder's name", g.Name, v)
		}
	})
	if err != nil {
		return err
	}
	for _, g := range [][2]string{
		{"model_uri", "a folder"}, {"predictions", "a folder"}, {"init_model", "a folder"}, {"report", "a folder"},
		{"label_set", "collapsed or full"}, {"precision", "float16 or float32"},
	} { // a variable that is not set
		if f.Given(g[0]) && f.Lookup(g[0]).Value.String() == "" {
			return Usagef("--%s is empty; name %s, or leave it out", g[0], g[1])
		}
	}
	if f.Worker() || f.Given("provision_endpoint") { // whose environment is not the user's
		return nil
	}
	return f.checkISA(os.Stderr)
}

// checkISA refuses a LINNET_ISA that is none, and says on w where this machine
// has not the one named.
func (f *Flags) checkISA(w io.Writer) error {
	name := os.Getenv("LINNET_ISA")
	switch {
	case name == "" || slices.Contains(kernel.ISAs(), name):
	case !slices.Contains(kernel.Names(), name):
		return Usagef("LINNET_ISA=%s is none; it must be one of %s", name, strings.Join(kernel.Names(), ", "))
	case verbosity(f.FlagSet) != 0:
		fmt.Fprintf(w, "linnet: LINNET_ISA=%s: this machine or build does not have it; %s is used\n", name, kernel.ISA())
	}
	return nil
}

// Given says whether the flag was on the command line.
func (f *Flags) Given(name string) bool {
	given := false
	f.Visit(func(g *flag.Flag) { given = given || g.Name == name })
	return given
}

// Worker says whether a runner started this process to work for it; then none
// of the pipeline's own flags are there.
func (f *Flags) Worker() bool {
	g := f.Lookup("worker")
	return g != nil && g.Value.String() == "true"
}

// CheckURI judges the place that a flag names. That it may not be reached is no wrong use.
func CheckURI(name, uri string) error {
	_, err := store.For(context.Background(), uri)
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return Usagef("--%s: %w", name, err)
}

// CheckReport refuses a folder where program would write over files that are none of a
// report of its own, which have that text in them. Where they cannot be read, the write
// that follows says so.
func CheckReport(ctx context.Context, program, folder string, files [][2]string) error {
	for _, f := range files {
		file := store.Join(folder, f[0])
		data, err := store.Read(ctx, file, 0)
		if err == nil && len(data) > 0 && !bytes.Contains(data, []byte(f[1])) {
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

func (f *Flags) help(w io.Writer) {
	fmt.Fprintf(w, "%s\n\nUsage: %s [flags]\n\n", f.summary, f.name)
	f.VisitAll(func(g *flag.Flag) {
		if f.before[g.Name] && !slices.Contains(f.show, g.Name) {
			return
		}
		kind, usage := flag.UnquoteUsage(g)
		def := ""
		if g.DefValue != "" && g.DefValue != "false" && g.DefValue != "[]" && !strings.Contains(usage, "(default ") {
			def = " (default " + g.DefValue + ")"
		}
		if kind != "" {
			kind = "=" + kind
		}
		fmt.Fprintf(w, "  --%s%s\n", g.Name, kind)
		fold(w, "        ", usage+def)
	})
	status := ""
	if rejected := f.Lookup("rejected_exit_status"); rejected != nil {
		status = "; " + rejected.DefValue + " done, but some documents were rejected (all of them: 1)"
	}
	fmt.Fprintln(w)
	fold(w, "", fmt.Sprintf("Exit statuses: 0 done; %d failed; %d wrong use%s.", Failed, Usage, status))
	if !f.before["endpoint"] {
		return
	}
	fmt.Fprintln(w)
	fold(w, "", "The flags of Beam's runners (--endpoint, --parallelism, --environment_type, --project, --region, …) are taken as well.")
}

// fold writes text in lines of at most 80 columns, where its words allow, each begun by
// indent.
func fold(w io.Writer, indent, text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(indent+line+word) >= 80 {
			fmt.Fprintf(w, "%s%s\n", indent, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	fmt.Fprintf(w, "%s%s\n", indent, line)
}

// Commit is that of the sources this program was built from, or their version where it
// is of a module's; "" where the build knew neither.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return commit(info)
}

func commit(info *debug.BuildInfo) string {
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty" // as Go has it in versions
		}
	}
	if revision == "" {
		return strings.TrimPrefix(info.Main.Version, "(devel)")
	}
	return revision + changed
}
