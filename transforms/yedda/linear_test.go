package yedda

import (
	"bytes"
	"fmt"
	"strings"
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

// linear holds f of 64 times the size to nothing like 4096 times the time. The small
// one is timed by sixty-four in a row, which are as many bytes as the large one, so
// other programs and a virtual machine's pauses lengthen either as much. The shortest
// of several is judged, and a bad one measured again, by the clock on the wall: a
// process's own time can be told too short where a hypervisor takes its share of it.
func linear(t *testing.T, name string, f func(size int)) {
	t.Helper()
	run := func(size, times int) time.Duration {
		start := time.Now()
		for range times {
			f(size)
		}
		return time.Since(start)
	}
	const size, times, least, most = 1 << 13, 64, 2, 10
	small, large := run(size, times), run(times*size, 1)
	for try := 1; try < least || large > 600*small/times; try++ {
		if try == most {
			t.Fatalf("%s: %v for %d times %d bytes, %v for as many at once", name, small, times, size, large)
		}
		small, large = min(small, run(size, times)), min(large, run(times*size, 1))
	}
}
