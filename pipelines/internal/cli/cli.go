// Package cli holds what the pipelines' mains share: flags, exit statuses,
// errors of one line, signals and progress.
//
// Exit statuses are 0 done, 1 failed, 2 wrong use, and what Status says. An
// error is one line on standard error that begins "linnet: ".
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf8"

	_ "github.com/linnet-ml/linnet/pipelines/internal/cli/nobody" // initialised before Beam
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
