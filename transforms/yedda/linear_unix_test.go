//go:build unix

package yedda

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLinearTime feeds the inputs that are hardest on a parser, in two sizes: 64
// times the bytes must not take anything like 4096 times the processor's time.
// What another program takes of the machine makes even that longer and never
// shorter, so the shortest of several is judged, and a bad one measured again.
// Windows tells a process's time in ticks that are too long, and has no such test.
func TestLinearTime(t *testing.T) {
	label := "#" + strings.Repeat("a", 50)
	for _, piece := range []string{
		"[@", "#X*]", "[@#X*]", "[[@@", "*]", "#", "[", "@a*]", label, label + "*", "a" + label[1:] + "*]", "[@a\n", "a\n", "\n", "\f", "\xff\n",
	} {
		run := func(size int) time.Duration {
			src := bytes.Repeat([]byte(piece), size/len(piece))
			// Half of it opened, half closed, to go deep.
			if piece == "[@" {
				src = append(src, bytes.Repeat([]byte("a#X*]"), size/len(piece))...)
			}
			start := processorTime(t)
			d := Parse(src)
			rows := Rows(d.Text)
			labels := d.LineLabels(rows)
			Recovers(Format(d.Text, d.Spans), d.Text)
			SpansOf(d.Text, rows, labels)
			return processorTime(t) - start
		}
		const size, tries = 1 << 13, 3
		small, large := min(run(size), run(size), run(size)), run(64*size)
		for try := 1; large > 600*small; try++ {
			if small == 0 {
				t.Skip("this system tells a process's time in ticks that are too long")
			}
			if try == tries {
				t.Fatalf("%.12q: %v for %d bytes, %v for 64 times as many", piece, small, size, large)
			}
			small, large = min(small, run(size)), min(large, run(64*size))
		}
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
