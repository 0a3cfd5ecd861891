package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Count writes n with commas between the thousands.
func Count(n int64) string { return humanize.Comma(n) }

// Warnf prints a warning, as a Line.
func Warnf(format string, args ...any) {
	fmt.Fprintln(os.Stderr, Line(fmt.Errorf("warning: "+format, args...)))
}

// Some names the first few of names.
func Some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// Markup says what YEDDA annotation is.
const Markup = "[@text#Label*], where a label is " + yedda.LabelRule

// Plural is n of what: "1 document", "2,000 documents".
func Plural(n int64, what string) string {
	return Count(n) + " " + english.PluralWord(int(n), what, "")
}

// Rate is n a second, for people.
func Rate(n int64, d time.Duration) string {
	return Count(int64(float64(n) / max(d.Seconds(), 1e-3)))
}

// Bytes is a flag for a number of bytes: 64MiB, 2GB, 1000000. 0 is none.
type Bytes int64

func (b *Bytes) String() string {
	if *b == 0 {
		return "0"
	}
	return strings.ReplaceAll(humanize.IBytes(uint64(*b)), " ", "")
}

// Set implements flag.Value.
func (b *Bytes) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	switch {
	case err == nil && n == 0 && strings.ContainsAny(s, "123456789"): // a share, which would be no limit
	case err == nil && n <= 1<<62:
		*b = Bytes(n)
		return nil
	case err == nil || errors.Is(err, strconv.ErrRange) || strings.HasPrefix(err.Error(), "too large"):
		return errors.New("too large; give 4EiB or less")
	}
	return errors.New("not a number of bytes, such as 64MiB or 2GB")
}

// Bar shows how far a run is: a bar where standard error is a terminal that has no log
// beside it, otherwise a line now and then, and nothing at a verbosity of 0.
type Bar struct {
	mu     sync.Mutex
	bar    *progressbar.ProgressBar
	out    io.Writer
	total  int64
	last   time.Time
	period time.Duration // from one text to the next, at least
	text   string        // the last one, where there is no bar
	wide   int           // columns that the bar took, at most
}

// barWidth is that of the bar alone, in columns; rest is what stands around it.
const barWidth, rest = 6, 10

// Total is the number of steps.
func (b *Bar) Total() int64 { return b.total }

// NewBar makes a Bar of total steps, 0 where there is no end to them.
func NewBar(total int64, verbosity int) *Bar {
	b := &Bar{out: os.Stderr, total: total, last: time.Now(), period: 10 * time.Second}
	switch {
	case verbosity == 0:
		b.out = nil
	case verbosity == 1 && terminal():
		b.bar, b.period = draw(os.Stderr, total), 100*time.Millisecond // the bar's own throttle lets text and share fall apart
	}
	return b
}

var terminal = func() bool { return term.IsTerminal(int(os.Stderr.Fd())) } // a test has another

// draw is the bar itself, or without an end a sign that turns.
func draw(w io.Writer, total int64) *progressbar.ProgressBar {
	return progressbar.NewOptions64(cmp.Or(total, -1),
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetWidth(barWidth),
		progressbar.OptionSetSpinnerChangeInterval(0), // no goroutine of its own
		progressbar.OptionSetPredictTime(false),       // the text tells it
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionClearOnFinish(),
	)
}

// Set moves the bar to n steps, with a text beside it.
func (b *Bar) Set(n int64, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out == nil || time.Since(b.last) < b.period {
		return
	}
	b.last = time.Now()
	if b.bar == nil {
		if text != b.text { // a watch may have nothing to do for days
			fmt.Fprintln(b.out, text)
		}
		b.text = text
		return
	}
	if columns := columns(); columns > 0 {
		text = text[:min(len(text), max(columns-barWidth-rest, 0))]
		if columns < b.wide { // the bar is wiped by as many blanks, which would wrap now
			fmt.Fprintf(b.out, "\r%*s\r", columns-1, "")
			b.bar, b.wide = draw(b.out, b.total), 0
		}
	}
	b.wide = max(b.wide, len(text)+barWidth+rest)
	b.bar.Describe(text)
	if b.total > 0 {
		_ = b.bar.Set64(min(n, b.total))
	}
}

// columns are those of the terminal, 0 where it does not tell.
var columns = func() int { // a test has another
	columns, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// Line writes a line of its own, above the bar.
func (b *Bar) Line(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out == nil {
		return
	}
	if b.bar != nil {
		_ = b.bar.Clear()
	}
	b.last = time.Now()
	fmt.Fprintln(b.out, text)
}

// Close takes the bar off the screen.
func (b *Bar) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
	b.out = nil
}
