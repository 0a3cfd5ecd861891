package cli

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model/kernel"
)

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
