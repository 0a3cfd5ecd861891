package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/model/kernel"
)

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

// CancelOnExit adds the flag --cancel_on_exit, for RunJob.
func (f *Flags) CancelOnExit(p *bool) {
	f.BoolVar(p, "cancel_on_exit", false, "cancel a job elsewhere at SIGTERM, too, and not only at ctrl-C")
}

// verbosity is --verbosity, 1 where there is no such flag.
func verbosity(f *flag.FlagSet) int {
	if g := f.Lookup("verbosity"); g != nil {
		return g.Value.(flag.Getter).Get().(int)
	}
	return 1
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
