package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

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
