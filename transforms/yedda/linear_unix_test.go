//go:build unix

package yedda

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLinearTime feeds the inputs that are hardest on a parser.
func TestLinearTime(t *testing.T) {
	label := "#" + strings.Repeat("a", 50)
	for _, piece := range []string{
		"[@", "#X*]", "[@#X*]", "[[@@", "*]", "#", "[", "@a*]", label, label + "*", "a" + label[1:] + "*]", "[@a\n", "a\n", "\n", "\f", "\xff\n",
	} {
		linear(t, fmt.Sprintf("%.12q", piece), func(size int) {
			src := bytes.Repeat([]byte(piece), size/len(piece))
			// Half of it opened, half closed, to go deep.
			if piece == "[@" {
				src = append(src, bytes.Repeat([]byte("a#X*]"), size/len(piece))...)
			}
			d := Parse(src)
			rows := Rows(d.Text)
			labels := d.LineLabels(rows)
			Recovers(Format(d.Text, d.Spans), d.Text)
			SpansOf(d.Text, rows, labels)
		})
	}
}

// TestLabelsLinearTime has a line of as many labels as can be.
func TestLabelsLinearTime(t *testing.T) {
	linear(t, "labels", func(size int) {
		var src []byte
		for i := range size / 16 {
			src = fmt.Appendf(src, "[@a#L%d*]", i)
		}
		d := Parse(src)
		d.LineLabels(Rows(d.Text))
	})
}

// TestNestLinearTime nests spans that cross their neighbours, and such as cross all
// that are open.
func TestNestLinearTime(t *testing.T) {
	for name, of := range map[string]func(i, spans int) Span{
		"neighbours": func(i, _ int) Span { return Span{Start: i, End: i + 4} },
		"all": func(i, spans int) Span {
			if i < spans/2 {
				return Span{Start: i, End: 2*spans - i}
			}
			return Span{Start: i, End: 2*spans + i}
		},
	} {
		linear(t, name, func(size int) {
			var d Document
			for i := range size / 32 {
				d.Spans = append(d.Spans, of(i, size/32))
			}
			if d.nest(make([]int, size/32)); d.NumWarnings == 0 {
				t.Fatalf("%s: no span crosses another", name)
			}
		})
	}
}

// linear holds f of 64 times the size to nothing like 4096 times the processor's time.
// What another program takes of the machine makes even that longer and never
// shorter, so the shortest of several is judged, and a bad one measured again.
// Windows tells a process's time in ticks that are too long, and has no such test.
func linear(t *testing.T, name string, f func(size int)) {
	t.Helper()
	run := func(size, times int) time.Duration {
		start := processorTime(t)
		for range times {
			f(size)
		}
		return (processorTime(t) - start) / time.Duration(times)
	}
	// A small one alone takes some 50 µs, too few for the system's clock.
	const size, times, tries = 1 << 13, 16, 3
	small, large := min(run(size, times), run(size, times), run(size, times)), run(64*size, 1)
	for try := 1; large > 600*small; try++ {
		if small == 0 {
			t.Skip("this system tells a process's time in ticks that are too long")
		}
		if try == tries {
			t.Fatalf("%s: %v for %d bytes, %v for 64 times as many", name, small, size, large)
		}
		small, large = min(small, run(size, times)), min(large, run(64*size, 1))
	}
}

// processorTime is what this process has taken of all processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
