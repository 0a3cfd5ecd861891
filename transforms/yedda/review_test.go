package yedda

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reviewModel is what a review page should show.
type reviewModel struct {
	names               []string
	text                [][]byte // of all lines, as what follows
	given, labels, sure []int    // -1 where the line is blank, or has no probability
	checked, shown      []bool
	hidden              []bool // of the labels
	only, unsaved       bool
	limit               int // percent
	at, anchor, home    int // the current line, that where marking began, that to come back to; or -1
	past                []reviewPast
	status              string
	out                 []byte // what the last step exported
}

// reviewPast is what undo brings back, and the line it goes to.
type reviewPast struct {
	labels  []int
	checked []bool
	first   int
}

func (m *reviewModel) title(k int) string {
	if k == 0 {
		return "no label"
	}
	return m.names[k]
}

func (m *reviewModel) doubtful(i int) bool {
	return m.labels[i] >= 0 && !m.checked[i] && m.sure[i] >= 0 && m.sure[i] < 10*m.limit
}

// name is what stands beside a line.
func (m *reviewModel) name(i int) string {
	name, same := m.title(m.labels[i]), m.labels[i] == m.given[i]
	if !same {
		name += ", changed"
	} else if m.sure[i] >= 0 {
		name += fmt.Sprintf(" %d %%", m.sure[i]/10)
	}
	if m.checked[i] && same {
		name += " ✓"
	} else if m.doubtful(i) {
		name += " ?"
	}
	return name
}

func (m *reviewModel) marked() (lines []int) {
	from, to := m.at, m.at
	if m.anchor >= 0 {
		from, to = min(m.at, m.anchor), max(m.at, m.anchor)
	}
	for i := from; i >= 0 && i <= to; i++ {
		if m.labels[i] >= 0 && m.shown[i] {
			lines = append(lines, i)
		}
	}
	return lines
}

// next is the next line that is shown, or -1.
func (m *reviewModel) next(from, step int, doubtful bool) int {
	for i := from + step; i >= 0 && i < len(m.labels); i += step {
		if m.labels[i] >= 0 && m.shown[i] && (!doubtful || m.doubtful(i)) {
			return i
		}
	}
	return -1
}

func (m *reviewModel) filter() {
	all := !m.only && !slices.Contains(m.hidden, true)
	for i, k := range m.labels {
		m.shown[i] = k < 0 && all || k >= 0 && !m.hidden[k] && (!m.only || m.doubtful(i))
	}
	from := m.at
	if m.home >= 0 {
		from = m.home
	}
	to := from
	if from < 0 || !m.shown[from] {
		if to = m.next(from, 1, false); to < 0 {
			to = m.next(from, -1, false)
		}
	}
	m.at, m.anchor, m.status = to, -1, ""
	if to >= 0 {
		m.home = -1
	} else if m.only && !slices.Contains(m.hidden, true) {
		m.status = "No doubtful line; f shows all."
	} else {
		m.status = "No such line; a shows all."
	}
	if to != from {
		m.home = from
	}
}

func (m *reviewModel) goTo(i int, extend bool) {
	if i < 0 {
		return
	}
	if !extend {
		m.anchor = -1
	} else if m.anchor < 0 {
		m.anchor = m.at
	}
	m.at, m.home = i, -1
}

func (m *reviewModel) move(step, times int, extend bool) {
	to := m.at
	for range times {
		if i := m.next(to, step, false); i >= 0 {
			to = i
		}
	}
	if to != m.at {
		m.goTo(to, extend)
	}
}

func (m *reviewModel) jump(step int, where string) {
	if i := m.next(m.at, step, true); i >= 0 {
		m.goTo(i, false)
		m.status = fmt.Sprintf("Line %d: %s", i+1, m.name(i))
	} else {
		m.status = "No doubtful line " + where + "."
	}
}

func (m *reviewModel) change(lines []int, what func(i int)) {
	if len(lines) == 0 {
		return
	}
	m.past = append(m.past, reviewPast{slices.Clone(m.labels), slices.Clone(m.checked), lines[0]})
	for _, i := range lines {
		what(i)
	}
	m.home, m.unsaved = -1, true
}

func (m *reviewModel) undo() {
	if len(m.past) == 0 {
		m.status = "Nothing to undo."
		return
	}
	last := m.past[len(m.past)-1]
	m.past = m.past[:len(m.past)-1]
	m.labels, m.checked, m.unsaved = last.labels, last.checked, true
	if !m.shown[last.first] {
		m.filter()
	}
	if m.shown[last.first] {
		m.goTo(last.first, false)
	}
	m.status = "Undone."
}

func (m *reviewModel) label(k int) {
	lines := m.marked()
	if k >= len(m.names) || len(lines) == 0 {
		return
	}
	m.change(lines, func(i int) { m.labels[i], m.checked[i] = k, true })
	m.status = fmt.Sprintf("%d lines: %s", len(lines), m.title(k))
	if len(lines) == 1 {
		m.status = fmt.Sprintf("Line %d: %s", lines[0]+1, m.title(k))
	}
}

func (m *reviewModel) check() {
	lines := m.marked()
	if len(lines) == 0 {
		return
	}
	on := slices.ContainsFunc(lines, func(i int) bool { return !m.checked[i] })
	m.change(lines, func(i int) { m.checked[i] = on })
	m.status = map[bool]string{true: "Checked.", false: "No longer checked."}[on]
}

func (m *reviewModel) accept() {
	m.change(slices.DeleteFunc(m.marked(), func(i int) bool { return m.checked[i] }), func(i int) { m.checked[i] = true })
	m.jump(1, "below")
}

func (m *reviewModel) show(k int) {
	if k < len(m.names) {
		m.hidden[k] = !m.hidden[k]
		m.filter()
	}
}

var labelRule = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,49}$`)

func (m *reviewModel) export() {
	for k, name := range m.names {
		if k > 0 && slices.Contains(m.labels, k) && !labelRule.MatchString(name) {
			m.status = fmt.Sprintf("Not exported: YEDDA cannot hold the label \"%s\"; give its lines another.", name)
			return
		}
	}
	text := slices.Concat(m.text...)
	lines := Inked(text, Rows(text))
	var labels []string
	for _, k := range m.labels {
		if k >= 0 {
			labels = append(labels, m.names[k])
		}
	}
	m.out = Format(text, SpansOf(text, lines, labels))
	m.unsaved, m.status = false, "Exported a__b.txt.ann."
}

// do takes one step.
func (m *reviewModel) do(step string) {
	what, arg, _ := strings.Cut(step, " ")
	n, _ := strconv.Atoi(arg)
	switch what {
	case "j", "ArrowDown":
		m.move(1, 1, false)
	case "k", "ArrowUp":
		m.move(-1, 1, false)
	case "J":
		m.move(1, 1, true)
	case "K":
		m.move(-1, 1, true)
	case "PageDown":
		m.move(1, 10, false)
	case "PageUp":
		m.move(-1, 10, false)
	case "g", "Home":
		m.goTo(m.next(-1, 1, false), false)
	case "G", "End":
		m.goTo(m.next(len(m.labels), -1, false), false)
	case "n", "#next":
		m.jump(1, "below")
	case "p", "N", "#previous":
		m.jump(-1, "above")
	case "Escape":
		m.goTo(m.at, false)
	case "Space":
		m.check()
	case "Enter":
		m.accept()
	case "u", "#undo":
		m.undo()
	case "e", "#export":
		m.export()
	case "f", "#only":
		m.only = !m.only
		m.filter()
	case "a":
		m.only = false
		clear(m.hidden)
		m.filter()
	case "o":
		if m.at >= 0 {
			for k := range m.hidden {
				m.hidden[k] = k != m.labels[m.at]
			}
			m.filter()
		}
	case "digit", "choose":
		m.label(n)
	case "show", "hide":
		m.show(n)
	case "limit":
		m.limit = n
		m.filter()
	case "click":
		m.goTo(n, false)
	case "mark":
		m.goTo(n, true)
	}
}

// view is the page in words, as reviewView finds it.
func (m *reviewModel) view() string {
	var b strings.Builder
	labelled, doubts, changed, n := 0, 0, 0, make([]int, len(m.names))
	marked := m.marked()
	for i, k := range m.labels {
		if k < 0 {
			fmt.Fprintln(&b, m.shown[i])
			continue
		}
		labelled++
		n[k]++
		class := "row"
		if k > 0 {
			class += " label"
		}
		if m.doubtful(i) {
			class += " doubtful"
			doubts++
		}
		if k != m.given[i] {
			class += " changed"
			changed++
		}
		if i == m.at {
			class += " current"
		}
		fmt.Fprintf(&b, "%d %t %t %s: %s\n", i+1, m.shown[i], slices.Contains(marked, i), class, m.name(i))
	}
	for k := range m.names {
		key := ""
		if k > 0 && k < 10 {
			key = fmt.Sprint(k, " ")
		}
		fmt.Fprintf(&b, "%s%s (%d) %t %t\n", key, m.title(k), n[k], !m.hidden[k], k == 0 && n[0] == 0 && !m.hidden[0])
	}
	lines := "lines"
	if labelled == 1 {
		lines = "line"
	}
	fmt.Fprintf(&b, "%d %s, %d doubtful, %d changed\nat %d, %t, %d %%, %t\n%s\n", labelled, lines, doubts, changed, m.at, m.only, m.limit, m.unsaved, m.status)
	if m.out != nil {
		fmt.Fprintf(&b, "a__b.txt.ann %d", m.out)
	}
	return b.String()
}

// reviewView takes steps, and has the page in words before them and after each.
const reviewView = `(async (steps) => {
  const $ = (id) => document.getElementById(id), views = [];
  let blob = null, exported = "";
  URL.createObjectURL = (b) => { blob = b; return "blob:"; };
  document.addEventListener("click", (event) => {
    if (!event.target.download) return;
    event.preventDefault();
    exported = event.target.download;
  });
  const view = async () => {
    const lines = [...document.querySelectorAll(".chunk > *")].map((e) => {
      const shown = !e.hidden && !e.parentElement.hidden;
      return e.className === "blank" ? shown : e.children[0].textContent + " " + shown + " " + (e.getAttribute("aria-selected") === "true") + " " + e.className + ": " + e.children[1].textContent;
    });
    for (const e of $("filter").children) lines.push(e.textContent + " " + e.getAttribute("aria-pressed") + " " + e.hidden);
    const id = $("list").getAttribute("aria-activedescendant"), at = id ? Number(id.slice(4)) : -1;
    const unsaved = !dispatchEvent(new Event("beforeunload", {cancelable: true}));
    lines.push($("counts").textContent, ["at " + at, $("only").checked, $("percent").value, unsaved].join(", "), $("status").textContent);
    if (blob) exported += " [" + new Uint8Array(await blob.arrayBuffer()).join(" ") + "]";
    lines.push(exported);
    [blob, exported] = [null, ""];
    views.push(lines.join("\n"));
  };
  const change = (id, value) => {
    $(id).value = value;
    for (const what of ["input", "change"]) $(id).dispatchEvent(new Event(what, {bubbles: true}));
  };
  try {
    await view();
    for (const step of steps) {
      const [what, arg] = step.split(" ");
      const key = (key, shiftKey, code) => $("list").dispatchEvent(new KeyboardEvent("keydown", {key, code, shiftKey, bubbles: true, cancelable: true}));
      if (what === "click" || what === "mark") $("line" + arg).dispatchEvent(new MouseEvent("click", {shiftKey: what === "mark", bubbles: true}));
      else if (what === "digit") key(arg, false, "Digit" + arg);
      else if (what === "hide") key("!", true, "Digit" + arg);
      else if (what === "show") $("show" + arg).click();
      else if (what === "choose") {
        key("l");
        $("names").selectedIndex = arg;
        $("names").dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true}));
      }
      else if (what === "limit") change("limit", arg);
      else if (what[0] === "#") $(what.slice(1)).click();
      else key(what === "Space" ? " " : what, /^[A-Z]$/.test(what));
      await view();
    }
  } catch (e) {
    views.push(String(e));
  }
  BeforeUnloadEvent.prototype.preventDefault = () => {}; // nobody is there to be asked
  return [views, [...document.querySelectorAll(".text")].map((e) => e.textContent)];
})(%s)`

type reviewLine struct {
	text  string
	label int
	p     float32
}

var reviewTexts = []string{
	"one", "two\r", "", "[@a#A*]", "\fthree", "fo\fur", "five\f", " \r", "\f", "\u00a0", "\xff\xff", "\ufffd", "s\xffix",
	"#Key*]", "[[@#Literal*]@", "*]", "\ufeffé𝔄", "</script><b>&lt;", strings.Repeat("long and ", 300), strings.Repeat("x", 2500),
}

// reviewSteps are keys, buttons, and what has an argument; those ahead come oftener.
var reviewSteps = strings.Fields(`none f digit f a J Enter u j mark Space #only choose k hide show limit click n p g G o e
	K #undo #next #previous #export PageDown PageUp N Home End ArrowDown ArrowUp Escape`)

// TestReviewAny has a curator do anything at the page of any document. After each step
// it shows what it should, an export is Format of the labels as they are then, and when
// all is undone every line has its first label.
func TestReviewAny(t *testing.T) {
	dir := t.TempDir()
	b, pages := openBrowser(t, "", dir), 0
	file := filepath.Join(dir, "any.html")
	rapid.Check(t, func(t *rapid.T) {
		// A document, of a few lines that may come again and again.
		m := reviewModel{limit: 80, at: -1, anchor: -1, home: -1}
		table := &Table{URI: "a/b.txt", Classes: rapid.SampledFrom([][]string{{"A"}, {"Key", "Description", "Nomenclature"}, {"two words", "B"}, strings.Split("A B C D E F G H I J K", " ")}).Draw(t, "classes")}
		m.names = append(reviewNames(table.Classes), "Other")
		pool := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) reviewLine {
			return reviewLine{
				text:  rapid.SampledFrom(reviewTexts).Draw(t, "text"),
				label: rapid.IntRange(0, len(m.names)-1).Draw(t, "label"),
				p:     rapid.SampledFrom([]float32{.9, .3, .7994, .7996, .8, .5, 0, .9996, 1, float32(math.NaN())}).Draw(t, "p"),
			}
		}), 0, 8).Draw(t, "lines")
		pool = slices.Repeat(pool, rapid.SampledFrom([]int{1, 1, 1, 30}).Draw(t, "times"))
		bare := rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "no probabilities")
		end := rapid.Bool().Draw(t, "LF at the end")
		var labels, texts []string
		for i, l := range pool {
			line := l.text + "\n"
			if i == len(pool)-1 && !end {
				if line = l.text; line == "" {
					break
				}
			}
			m.text = append(m.text, []byte(line))
			k, sure := l.label, -1
			switch {
			case !hasInk([]byte(l.text)):
				k = -1
			case Blank([]byte(l.text)):
				k = 0
			case !bare && k > 0 && m.names[k] != "Other" && l.p == l.p:
				sure = int(math.Round(1000 * float64(l.p)))
			}
			m.labels, m.sure = append(m.labels, k), append(m.sure, sure)
			if k < 0 {
				continue
			}
			labels = append(labels, m.names[k])
			texts = append(texts, strings.ReplaceAll(string([]rune(l.text)), "\f", "␌"))
			if Blank([]byte(l.text)) {
				continue
			}
			table.Labels = append(table.Labels, m.names[k])
			for _, class := range table.Classes {
				if p := float32(0); !bare {
					if class == m.names[k] {
						p = l.p
					}
					table.Probs = append(table.Probs, p)
				}
			}
		}
		if !slices.Contains(labels, "Other") {
			m.names = m.names[:len(m.names)-1]
		}
		m.given = slices.Clone(m.labels)
		m.checked, m.shown, m.hidden = make([]bool, len(m.labels)), make([]bool, len(m.labels)), make([]bool, len(m.names))
		table.Text = slices.Concat(m.text...)
		table.Rows = Rows(table.Text)
		if err := os.WriteFile(file, WriteHTML(table, Inked(table.Text, table.Rows), labels), 0o600); err != nil {
			t.Fatal(err)
		}

		// Steps, and what each should bring.
		m.filter()
		m.status = "Press ? for the keys."
		steps, want := []string{}, []string{m.view()}
		do := func(step string) {
			m.out = nil
			m.do(step)
			steps, want = append(steps, step), append(want, m.view())
			if m.out != nil && !bytes.Equal(Parse(m.out).Text, table.Text) {
				t.Fatalf("the export %q is of other text", m.out)
			}
		}
		for range 40 {
			switch step := rapid.SampledFrom(reviewSteps).Draw(t, "step"); step {
			case "none":
			case "digit", "hide":
				do(fmt.Sprint(step, " ", rapid.IntRange(0, 9).Draw(t, "digit")))
			case "choose", "show":
				do(fmt.Sprint(step, " ", rapid.IntRange(0, len(m.names)-1).Draw(t, "label")))
			case "limit":
				do(fmt.Sprint(step, " ", rapid.SampledFrom([]int{0, 30, 50, 79, 80, 81, 100}).Draw(t, "percent")))
			case "click", "mark":
				if m.at >= 0 {
					to := m.next(rapid.IntRange(-1, len(m.labels)-1).Draw(t, "line"), 1, false)
					if to < 0 {
						to = m.at
					}
					do(fmt.Sprint(step, " ", to))
				}
			default:
				do(step)
			}
		}
		for len(m.past) > 0 {
			do("u")
		}
		do("u")
		if !slices.Equal(m.labels, m.given) || slices.Contains(m.checked, true) {
			t.Fatal("the model itself does not undo everything")
		}
		do("e")

		pages++
		b.complaints()
		b.open(fmt.Sprint(file, "?", pages))
		arg, err := json.Marshal(steps)
		if err != nil {
			t.Fatal(err)
		}
		var got [2][]string
		b.eval(fmt.Sprintf(reviewView, arg), &got)
		if !slices.Equal(got[1], texts) {
			t.Fatalf("the page shows %q, want %q", got[1], texts)
		}
		for i, view := range got[0] {
			if i >= len(want) || view != want[i] {
				t.Fatalf("after %q the page says\n%s\nwant\n%s", steps[:min(i, len(steps))], view, want[min(i, len(want)-1)])
			}
		}
		if c := b.complaints(); len(c) > 0 {
			t.Fatalf("the page complains: %s", c)
		}
	})
}
