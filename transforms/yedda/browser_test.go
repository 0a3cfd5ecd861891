package yedda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// current is the number of the current line, from 0, or -1 where it is hidden or
// out of view.
const current = `(() => {
  const row = document.getElementById(document.getElementById("list").getAttribute("aria-activedescendant"));
  const box = row.getBoundingClientRect(), list = document.getElementById("list").getBoundingClientRect();
  return box.height > 0 && box.top >= list.top - 1 && box.bottom <= list.bottom + 1 ? Number(row.id.slice(4)) : -1;
})()`

// chosen is the current line's label, without its probability.
const chosen = `/^[^ ,]+/.exec(document.querySelector(".row.current .name").textContent)[0]`

const visible = `document.querySelectorAll(".chunk:not([hidden]) > .row:not([hidden])").length`

// drawn is the number of lines in view.
const drawn = `(() => {
  const list = document.getElementById("list").getBoundingClientRect();
  const seen = new Set();
  for (let y = list.top + 5; y < list.bottom; y += 10) {
    const row = document.elementFromPoint(list.left + 100, y).closest(".row");
    if (row) seen.add(row);
  }
  return seen.size;
})()`

// worstContrast is the least contrast, by the rules of WCAG, of a label's name,
// a line's text and number, a button and a confusion's number against what is behind them.
const worstContrast = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const color = (...layers) => {
    for (const l of layers) { canvas.fillStyle = l; canvas.fillRect(0, 0, 1, 1); }
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = (c) => {
    const [r, g, b] = [...c].slice(0, 3).map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const paper = getComputedStyle(document.body).backgroundColor;
  let worst = 99;
  for (const e of [...document.querySelectorAll(".row > *")].slice(0, 600).concat(...document.querySelectorAll("#filter button:not([hidden]), .matrix td"))) {
    const behind = getComputedStyle(e.matches("button, td") ? e : e.parentElement).backgroundColor;
    const a = light(color(paper, behind, getComputedStyle(e).color)), b = light(color(paper, behind));
    worst = Math.min(worst, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
  }
  return worst;
})()`

// command builds one of the pipelines and returns how to run it.
func command(t *testing.T, name string) func(args ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", program, "../../pipelines/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
}

// small makes a training of a moment.
var small = []string{"--input_size=512", "--embedding_size=8", "--hidden_size=6", "--epochs=1"}

// exported waits for a file that the page saves, of want's length.
func exported(t *testing.T, file string, want []byte) {
	t.Helper()
	var got []byte
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end) && len(got) < len(want); time.Sleep(50 * time.Millisecond) {
		got, _ = os.ReadFile(file)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the export has %d bytes and differs, want %d", filepath.Base(file), len(got), len(want))
	}
}

// From documents to a model by way of a curator: predict writes the pages and
// their index, someone opens it, goes to a document, to its next doubtful
// line, corrects it and exports, and train takes the file.
func TestReviewEndToEnd(t *testing.T) {
	dir := t.TempDir()
	out, downloads := filepath.Join(dir, "out"), filepath.Join(dir, "downloads")
	b := openBrowser(t, "", downloads)
	said := command(t, "predict")("--input=../../testdata/sample", "--output="+out, "--format=html,yedda,csv")
	t.Logf("%s", said)
	b.navigate(filepath.Join(out, "index.html"))
	b.wait(`document.readyState === "complete" && document.querySelector("tbody a")`)
	for _, scheme := range []string{"light", "dark"} {
		if !b.scheme(scheme) {
			continue
		}
		for look, width := range map[string]int{"wide": 1280, "narrow": 360} {
			b.size(width, 740)
			var over int
			if b.eval(`document.documentElement.scrollWidth - innerWidth`, &over); over > 0 {
				t.Errorf("index, %s, %s: %d pixels stand out", look, scheme, over)
			}
			b.shoot("index-" + look + "-" + scheme)
		}
	}
	b.scheme("light")
	b.size(1280, 800)

	// The index counts what the pages count.
	var rows [][]string
	b.eval(`[...document.querySelectorAll("tbody tr")].map((r) => [...r.children].map((c) => c.textContent))`, &rows)
	if len(rows) != 5 {
		t.Fatalf("the index has %d documents, want 5", len(rows))
	}
	// Its headings sort it, by the mouse and by keys.
	column := func(i int) (c []string) {
		b.eval(fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].map((r) => r.children[%d].textContent)`, i), &c)
		return c
	}
	byNumber := func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	}
	b.eval(`[...document.querySelectorAll("thead button")].forEach((e, i) => { e.id = "head" + i; }) || 0`, new(int))
	names, doubtful := column(0), slices.SortedStableFunc(slices.Values(column(2)), byNumber)
	b.click("head2")
	b.shoot("index-sorted")
	most := slices.Clone(doubtful)
	slices.Reverse(most)
	if got := column(2); !slices.IsSorted(names) || !slices.Equal(got, most) || most[0] == most[4] {
		t.Errorf("of %v by most doubtful lines %v", names, got)
	}
	b.keys("Enter")
	if got := column(2); !slices.Equal(got, doubtful) {
		t.Errorf("by fewest doubtful lines %v", got)
	}
	for _, want := range []string{"ascending", "descending", "ascending"} {
		b.click("head0")
		order := slices.Clone(names)
		if want == "descending" {
			slices.Reverse(order)
		}
		var sorted []string
		b.eval(`[...document.querySelectorAll("[aria-sort]")].map((e) => e.textContent + " " + e.getAttribute("aria-sort"))`, &sorted)
		if got := column(0); !slices.Equal(got, order) || !slices.Equal(sorted, []string{"Document " + want}) {
			t.Errorf("by name, %s: %v, told %v", want, got, sorted)
		}
	}

	const name = "protologue.txt"
	var doubts string
	for _, r := range rows {
		if r[0] == name {
			doubts = fmt.Sprintf("%s lines, %s doubtful, 0 changed", r[1], r[2])
		}
	}
	// Not by a click: who asks a page that is just leaving gets no answer.
	var link string
	b.eval(fmt.Sprintf(`[...document.querySelectorAll("tbody a")].find((a) => a.textContent === %q).href`, name), &link)
	b.open(strings.TrimPrefix(link, "file://"))
	var counts string
	if b.eval(`document.getElementById("counts").textContent`, &counts); counts != doubts {
		t.Errorf("the page counts %q, the index %q", counts, doubts)
	}
	b.keys("g", "n")
	var at int
	if b.eval(current, &at); at < 0 {
		t.Fatal("no doubtful line in view")
	}
	// Whatever the model said of it, the correction is another label.
	src, err := os.ReadFile(filepath.Join(out, name+".ann"))
	if err != nil {
		t.Fatal(err)
	}
	d := Parse(src)
	rowsOf := Rows(d.Text)
	labels := d.LineLabels(rowsOf)
	line := slices.Index(rowsOf, Lines(d.Text)[at])
	if line < 0 {
		t.Fatalf("line %d has no label", at+1)
	}
	correction, key := "Nomenclature", "1"
	if labels[line] == correction {
		correction, key = "Description", "2"
	}
	labels[line] = correction
	b.keys(key)
	b.shoot("corrected")
	b.keys("e")
	exported(t, filepath.Join(downloads, name+".ann"), Format(d.Text, SpansOf(d.Text, rowsOf, labels)))
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("the page complains: %s", c)
	}

	model := filepath.Join(dir, "model")
	said = command(t, "train")(append([]string{"--input=" + filepath.Join(downloads, name+".ann"), "--model_out=" + model}, small...)...)
	t.Logf("%s", said)
	if want := fmt.Sprintf("--input: 1 document, %d lines with a label", len(rowsOf)); !strings.Contains(said, want) {
		t.Errorf("train does not say %q", want)
	}
	if !exists(filepath.Join(model, "weights.safetensors")) {
		t.Error("no model")
	}
}

// On paper nothing scrolls, so tables stand there whole: a browser shrinks a page that
// is too wide for A4, 718 pixels within the margins, by half as much again at most.
func TestPrintInBrowser(t *testing.T) {
	dir := t.TempDir()
	b := openBrowser(t, "", dir)
	command(t, "predict")("--input=../../testdata/sample", "--output="+dir, "--format=html", "--label_set=full")
	command(t, "evaluate")("--input=../../testdata/annotated", "--label_set=full", "--report="+dir)
	command(t, "profile")("--input=../../testdata/sample", "--batch_sizes=1,2", "--rounds=1", "--report="+dir)
	if !b.media("print") {
		t.Skip("this browser's driver cannot have a page look as on paper")
	}
	b.size(718*3/2, 1000)
	for _, name := range []string{"index.html", "report.html", "profile.html"} {
		b.navigate(filepath.Join(dir, name))
		b.wait(fmt.Sprintf(`location.href.endsWith(%q) && document.readyState === "complete"`, "/"+name))
		var cut int
		b.eval(`Math.max(document.documentElement.scrollWidth - document.documentElement.clientWidth,
  ...[...document.querySelectorAll("div")].filter((e) => getComputedStyle(e).overflowX !== "visible").map((e) => e.scrollWidth - e.clientWidth))`, &cut)
		if cut > 0 {
			t.Errorf("%s: on paper %d pixels are cut off", name, cut)
		}
	}
}

// axe-core, whose script LINNET_AXE names, finds nothing in any page that hinders somebody
// with a screen reader, without a mouse, or who needs contrast.
func TestAccessibleInBrowser(t *testing.T) {
	file := os.Getenv("LINNET_AXE")
	if file == "" {
		t.Skip("LINNET_AXE names no axe.min.js, so its rules were not tried")
	}
	axe, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b := openBrowser(t, "", dir)
	command(t, "predict")("--input=../../testdata/sample", "--output="+dir, "--format=html", "--label_set=full")
	command(t, "evaluate")("--input=../../testdata/annotated", "--label_set=full", "--report="+dir)
	command(t, "profile")("--input=../../testdata/sample", "--batch_sizes=1,2", "--rounds=1", "--report="+dir)
	for _, scheme := range []string{"light", "dark"} {
		if !b.scheme(scheme) {
			continue
		}
		for page, keys := range map[string][]string{
			"index.html": {""}, "report.html": {""}, "profile.html": {""},
			"html/protologue.txt.html": {"", "l", "Escape", "?", "Escape", "f", "2"},
		} {
			b.navigate(filepath.Join(dir, page) + "?" + scheme)
			b.wait(fmt.Sprintf(`location.search === "?%s" && document.readyState === "complete"`, scheme))
			b.eval("(() => { "+string(axe)+"\n return 0; })()", new(int))
			for _, key := range keys {
				if key != "" {
					b.keys(key)
				}
				for _, width := range []int{1280, 360} {
					b.size(width, 740)
					var found []string
					b.eval(`axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes[0].html.slice(0, 200)))`, &found)
					for _, f := range found {
						t.Errorf("%s, %s, %d pixels wide, %q: %s", page, scheme, width, key, f)
					}
				}
			}
			b.keys("e") // or the browser would ask whether to leave
		}
	}
}

// The report's confusions can be read on the deepest of their colours.
func TestReportInBrowser(t *testing.T) {
	dir := t.TempDir()
	b := openBrowser(t, "", dir)
	command(t, "evaluate")("--input=../../testdata/annotated", "--report="+dir)
	for _, scheme := range []string{"light", "dark"} {
		if !b.scheme(scheme) {
			continue
		}
		b.navigate(filepath.Join(dir, "report.html") + "?" + scheme)
		b.wait(fmt.Sprintf(`location.search === "?%s" && document.readyState === "complete" && document.querySelector(".r60")`, scheme))
		var n int
		b.eval(`[...document.querySelectorAll(".matrix td")].forEach((e, i) => { e.className = i % 2 ? "w60" : "r60"; }) || 0`, &n)
		var worst float64
		if b.eval(worstContrast, &worst); worst < 4.5 {
			t.Errorf("%s: a contrast of %.2f, want 4.5", scheme, worst)
		}
	}
}

// reviewLong is a document of 20,000 lines, every seventh of them blank, every
// 50th of the others doubtful.
func reviewLong() (c reviewCase, doubtful []int) {
	var text []byte
	for i := range 20000 {
		switch {
		case i%7 == 6:
		case i == 8:
			text = append(text, `</script><script>window.ran = 1</script><img src=x onerror="window.ran = 2">`...)
		case i%97 == 0:
			text = fmt.Appendf(text, "Agaricus fictus %d Nov., sp. nov. \xe9\xff", i)
		default:
			text = fmt.Appendf(text, "line %d: pileus 3–5 cm broad, convex, then plane, [@ smooth, ochre, the margin striate when moist", i)
		}
		text = append(text, '\n')
	}
	rows := Rows(text)
	classes := []string{"Nomenclature", "Description", "Misc-exposition"}
	t := &Table{URI: "journals/long.txt", Text: text, Rows: rows, Classes: classes}
	numbers := lineNumbers{text: text}
	for i, row := range rows {
		k := i / 10 % 3
		p := []float32{.01, .01, .01}
		p[k] = .98
		if i%50 == 20 {
			p = []float32{.2, .2, .2}
			p[k] = .6
			doubtful = append(doubtful, numbers.of(row.Start)-1)
		}
		t.Labels = append(t.Labels, classes[k])
		t.Probs = append(t.Probs, p...)
	}
	return reviewCase{"long", t, rows, t.Labels}, doubtful
}

// A curator's work at a page of 20,000 lines, in a browser, with the keyboard
// alone.
func TestHTMLInBrowser(t *testing.T) {
	c, doubtful := reviewLong()
	dir := t.TempDir()
	file := filepath.Join(dir, "long.txt.html")
	writePage(t, file, c.table, c.lines, c.labels)
	b := openBrowser(t, file, dir)

	var at, n, ran int
	var status string
	b.shoot("wide-light")
	b.eval(visible, &n)
	if n != len(c.lines) {
		t.Errorf("%d lines are shown, want %d", n, len(c.lines))
	}
	t.Logf("open after %.0f ms", b.opening())

	// Through the doubtful lines and back.
	for i := range 40 {
		b.keys("n")
		if b.eval(current, &at); at != doubtful[i] {
			t.Fatalf("n goes to line %d, want %d", at, doubtful[i])
		}
	}
	b.keys("p")
	if b.eval(current, &at); at != doubtful[38] {
		t.Errorf("p goes to line %d, want %d", at, doubtful[38])
	}
	b.keys("Shift+G")
	if b.eval(current, &at); at != 19999 && at != 19998 {
		t.Errorf("G goes to line %d", at)
	}
	b.keys("g", "n", "Enter") // the first is right
	if b.eval(current, &at); at != doubtful[1] {
		t.Errorf("Enter goes to line %d, want %d", at, doubtful[1])
	}
	b.keys("p")
	if b.eval(`document.getElementById("status").textContent`, &status); status != "No doubtful line above." {
		t.Errorf("a checked line is doubtful: %s", status)
	}

	// The second gets another label, with the two lines below it; then one
	// more, which is taken back.
	labels := slices.Clone(c.labels)
	k := 0
	for c.lines[k] != Lines(c.table.Text)[at] {
		k++
	}
	b.keys("Shift+J", "Shift+J", "1", "j", "3", "u")
	for i := range 3 {
		labels[k+i] = "Nomenclature"
	}
	b.shoot("wide-light-changed")

	// Only one label is left, then only doubtful lines, then all.
	b.keys("Shift+1", "Shift+2")
	misc := 0
	for _, l := range labels {
		if l == "Misc-exposition" {
			misc++
		}
	}
	if b.eval(visible, &n); n != misc {
		t.Errorf("%d lines are shown with two labels hidden, want %d", n, misc)
	}
	b.keys("a", "f")
	if b.eval(visible, &n); n != len(doubtful)-2 {
		t.Errorf("%d doubtful lines are shown, want %d", n, len(doubtful)-2)
	}
	b.shoot("wide-light-doubtful")
	b.paint()
	if b.eval(drawn, &n); n < 20 {
		t.Errorf("%d doubtful lines are drawn in view, too few to fill it", n)
	}
	b.keys("Shift+J", "a")
	if b.eval(visible, &n); n != len(c.lines) {
		t.Errorf("%d lines are shown, want all", n)
	}
	var marks int // lines that were hidden between two marked ones are not
	b.eval(`document.querySelectorAll(".row[aria-selected=true]").length`, &marks)
	b.keys("1")
	if b.eval(`document.getElementById("status").textContent`, &status); marks != 1 || !strings.HasPrefix(status, "Line ") {
		t.Errorf("%d lines are marked when all are shown, want 1, and labelled: %s", marks, status)
	}
	b.keys("u", "g")
	for _, id := range []string{"next", "only", "only", "limit"} { // keys stay with the lines
		b.click(id)
		var from int
		b.eval(current, &from)
		b.keys("j")
		if b.eval(current, &at); at <= from {
			t.Errorf("after a click at %s j goes from line %d to %d", id, from, at)
		}
	}
	b.keys("?")
	b.wait(`document.getElementById("keys").open`)
	b.shoot("wide-light-keys")
	b.keys("Escape")
	b.wait(`!document.getElementById("keys").open && document.activeElement === document.getElementById("list")`)

	b.keys("e")
	saved := filepath.Join(dir, "journals__long.txt.ann")
	want := Format(c.table.Text, SpansOf(c.table.Text, c.lines, labels))
	exported(t, saved, want)
	said := command(t, "train")(append([]string{"--input=" + saved, "--model_out=" + filepath.Join(dir, "model")}, small...)...)
	if want := fmt.Sprintf("--input: 1 document, %d,%03d lines with a label", len(labels)/1000, len(labels)%1000); !strings.Contains(said, want) {
		t.Errorf("train says %s, want %s", said, want)
	}

	// Every look is wide enough for its text and has contrast enough to read.
	for _, scheme := range []string{"light", "dark"} {
		if !b.scheme(scheme) {
			continue
		}
		var worst float64
		if b.eval(worstContrast, &worst); worst < 4.5 {
			t.Errorf("%s: a contrast of %.2f, want 4.5", scheme, worst)
		}
		t.Logf("%s: contrast %.2f and better", scheme, worst)
		for look, width := range map[string]int{"wide": 1280, "narrow": 360} {
			b.size(width, 740)
			var over int
			b.eval(`Math.max(document.documentElement.scrollWidth - innerWidth, document.getElementById("list").scrollWidth - document.getElementById("list").clientWidth)`, &over)
			if over > 0 {
				t.Errorf("%s, %s: %d pixels stand out", look, scheme, over)
			}
			b.paint()
			if b.eval(current, &at); at < 0 {
				t.Errorf("%s, %s: the current line is out of view", look, scheme)
			}
			b.shoot(look + "-" + scheme)
		}
	}
	if b.eval(`Number(window.ran || 0)`, &ran); ran != 0 {
		t.Error("text of the document ran as a script")
	}

	// As many labels as the full set has are all as readable.
	c = reviewCase{table: &Table{URI: "labels.txt"}}
	for i := range 24 {
		c.table.Classes = append(c.table.Classes, fmt.Sprint("Label-", i))
	}
	for i := range 48 {
		c.table.Text = fmt.Appendf(c.table.Text, "line %d\n", i)
		c.table.Labels = append(c.table.Labels, c.table.Classes[i%24])
		for k := range 24 {
			p := float32(0)
			if k == i%24 {
				p = float32(i/24) * 0.9
			}
			c.table.Probs = append(c.table.Probs, p)
		}
	}
	c.table.Rows = Rows(c.table.Text)
	file = filepath.Join(dir, "labels.html")
	writePage(t, file, c.table, c.table.Rows, c.table.Labels)
	b.open(file)

	// With the mouse: a line, its label, and a label hidden.
	var text string
	b.eval(`(() => {
  document.getElementById("line30").click();
  document.getElementById("choose").click();
  document.getElementById("names").options[24].click();
  document.getElementById("show2").click();
  return document.getElementById("line30").textContent + document.getElementById("show24").textContent;
})()`, &text)
	if want := "31Label-23, changedline 30Label-23 (3)"; text != want {
		t.Errorf("after the clicks the page says %q, want %q", text, want)
	}
	if b.eval(visible, &n); n != 46 {
		t.Errorf("%d lines are shown without one label, want 46", n)
	}

	// With a French keyboard, where digits need Shift, and one from Québec,
	// where "?" stands on a digit's key; then a label by its name.
	b.keys("g", "é/Digit2")
	if b.eval(chosen, &text); text != "Label-1" {
		t.Errorf("the key of 2 gives label %q", text)
	}
	b.keys("Shift+2/Digit2")
	if b.eval(visible, &n); n != 48 {
		t.Errorf("%d lines are shown with all labels, want 48", n)
	}
	b.keys("Shift+?/Digit6")
	b.wait(`document.getElementById("keys").open`)
	b.keys("Escape")
	b.wait(`document.activeElement === document.getElementById("list")`)
	b.keys("l")
	b.keys(strings.Split("Label-12", "")...)
	b.shoot("labels-list")
	b.keys("Enter")
	b.wait(`document.activeElement === document.getElementById("list")`)
	if b.eval(chosen, &text); text != "Label-12" {
		t.Errorf("l and its name give label %q, want Label-12", text)
	}
	b.keys("l", "Escape")
	b.wait(`document.activeElement === document.getElementById("list")`)
	for _, scheme := range []string{"light", "dark"} {
		if !b.scheme(scheme) {
			continue
		}
		var worst float64
		if b.eval(worstContrast, &worst); worst < 4.5 {
			t.Errorf("24 labels, %s: a contrast of %.2f, want 4.5", scheme, worst)
		}
		t.Logf("24 labels, %s: contrast %.2f and better", scheme, worst)
		b.shoot("labels-" + scheme)
	}
	if b.media("print") {
		if b.eval(`document.getElementById("list").scrollHeight - document.getElementById("list").clientHeight`, &n); n > 0 {
			t.Errorf("on paper %d pixels of the lines are cut off", n)
		}
	}
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("the page complains: %s", c)
	}
}

// Documents whose paths differ in a slash alone do not export over each other.
func TestHTMLNamesInBrowser(t *testing.T) {
	dir := t.TempDir()
	b := openBrowser(t, "", dir)
	page := filepath.Join(dir, "page.html")
	want := map[string][]byte{}
	for name, file := range map[string]string{"a/b.txt": "a__b.txt.ann", "a_b.txt": "a_b.txt.ann"} {
		text := []byte("of " + name)
		rows, labels := Rows(text), []string{description}
		writePage(t, page, tableOf(name, text, rows, labels), rows, labels)
		b.open(page)
		b.keys("e")
		b.wait(fmt.Sprintf(`document.getElementById("status").textContent === "Exported %s."`, file))
		want[filepath.Join(dir, file)] = Format(text, SpansOf(text, rows, labels))
	}
	for file, want := range want {
		exported(t, file, want)
	}
}

// What filters hide comes back with the line that was the current one, unless
// somebody went to another or did something meanwhile.
func TestHTMLFilterInBrowser(t *testing.T) {
	table := &Table{URI: "short.txt", Classes: []string{"A", "B"}}
	for i := range 40 {
		table.Text = fmt.Appendf(table.Text, "line %d\n", i)
		table.Labels = append(table.Labels, "A")
		p := float32(.9)
		if i == 20 || i == 30 {
			p = .6
		}
		table.Probs = append(table.Probs, p, 1-p)
	}
	table.Rows = Rows(table.Text)
	file := filepath.Join(t.TempDir(), "short.txt.html")
	writePage(t, file, table, table.Rows, table.Labels)
	b := openBrowser(t, "", t.TempDir())
	const none = "No doubtful line; f shows all."
	for i, c := range []struct {
		at, below int // the line to begin at, and the slider's value
		keys      string
		want      int
		status    string
	}{
		{5, 80, "f", 20, ""},
		{5, 80, "f f", 5, ""},
		{35, 80, "f f", 35, ""},
		{5, 80, "f j f", 30, ""},
		{5, 80, "f 1 a", 20, ""},
		{5, 80, "f Shift+1 a", 5, ""},
		{5, 0, "f", -1, none},
		{5, 0, "f f", 5, ""},
		{5, 0, "f Space", -1, none},
		{5, 0, "f 1 u j Shift+G Enter Escape f", 5, ""},
		{5, 0, "Shift+1 f f", -1, "No such line; a shows all."},
		{5, 0, "Shift+1 a", 5, ""},
		{5, 80, "J", 6, ""}, // with Caps Lock
		{5, 80, "N", 20, "Line 21: A 60 % ?"},
		{25, 80, "Shift+n", 20, "Line 21: A 60 % ?"},
		{5, 80, "F", 20, ""},
		{5, 80, "f Enter f f u", 20, "Undone."}, // as it was it is shown
		{20, 80, "2 Shift+2 u", 20, "Undone."},
		{5, 80, "1 Shift+1 u", -1, "Undone."},
	} {
		b.open(fmt.Sprintf("%s?%d", file, i))
		var n, at int
		b.eval(fmt.Sprintf(`(() => {
  const limit = document.getElementById("limit");
  limit.value = %d;
  limit.dispatchEvent(new Event("change"));
  document.getElementById("line%d").click();
  return 0;
})()`, c.below, c.at), &n)
		b.keys(strings.Fields(c.keys)...)
		var status string
		b.eval(`document.getElementById("status").textContent`, &status)
		if b.eval(`document.querySelectorAll("[aria-selected=true]").length`, &n); n > 1 {
			t.Errorf("%s: %d lines are marked", c.keys, n)
		}
		b.eval(`(() => { const id = document.getElementById("list").getAttribute("aria-activedescendant"); return id ? Number(id.slice(4)) : -1; })()`, &at)
		if at != c.want || status != c.status {
			t.Errorf("from line %d, doubtful below %d %%, %s: line %d, %q; want %d, %q", c.at, c.below, c.keys, at, status, c.want, c.status)
		}
		b.keys("e") // or the browser would ask whether to leave
	}
}

// A label that is hidden has its button, or nobody could show it again, and blank lines,
// which stand only among all, with it.
func TestHTMLHiddenLabelInBrowser(t *testing.T) {
	table := shortTable()
	file := filepath.Join(t.TempDir(), "short.html")
	writePage(t, file, table, table.Rows, table.Labels)
	b := openBrowser(t, file, t.TempDir())
	const buttons = `[...document.getElementById("filter").children].filter((e) => !e.hidden).map((e) => e.textContent + " " + e.getAttribute("aria-pressed")).join(", ")`
	for _, c := range [][2]string{
		{"g", "1 A (1) true, 2 B (1) true"},
		{"o", "no label (0) false, 1 A (1) true, 2 B (1) false"},
		{"a", "1 A (1) true, 2 B (1) true"},
	} {
		b.keys(c[0])
		var got string
		if b.eval(buttons, &got); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}

// shortTable has a line of each of two labels, of which the second is doubtful.
func shortTable() *Table {
	table := &Table{
		URI: "short.txt", Text: []byte("one\ntwo\n"), Classes: []string{"A", "B"},
		Labels: []string{"A", "B"}, Probs: []float32{.9, .1, .4, .6},
	}
	table.Rows = Rows(table.Text)
	return table
}

// With colours of the system's own, which leave out a page's backgrounds and shadows,
// a marked line still looks other than one that is not, and the current one other than both.
func TestHTMLForcedColorsInBrowser(t *testing.T) {
	table := &Table{URI: "two.txt", Text: []byte("one\ntwo\n"), Classes: []string{"A"}, Labels: []string{"A", "A"}}
	table.Rows = Rows(table.Text)
	file := filepath.Join(t.TempDir(), "two.html")
	writePage(t, file, table, table.Rows, table.Labels)
	b := openBrowser(t, "", t.TempDir())
	if !b.feature("forced-colors", "active") {
		t.Skip("this browser's driver cannot give the system's colours")
	}
	b.open(file)
	b.keys("j", "Shift+K")
	var marked string
	if b.eval(`[...document.querySelectorAll("[aria-selected=true]")].map((e) => e.id).join(" ")`, &marked); marked != "line0 line1" {
		t.Fatalf("marked are %q", marked)
	}
	looks := map[string]string{}
	for _, c := range [][2]string{{"", "marked"}, {"Escape", "plain"}, {"j", "current"}} {
		if c[0] != "" {
			b.keys(c[0])
		}
		look := b.look("line1")
		if as, ok := looks[look]; ok {
			t.Errorf("a %s line looks like a %s one", c[1], as)
		}
		looks[look] = c[1]
	}
}

// Where no line is left to show, who comes to the lines by the keyboard sees that the
// keys go there.
func TestHTMLFocusInBrowser(t *testing.T) {
	table := &Table{URI: "sure.txt", Text: []byte("one\n"), Classes: []string{"A"}, Labels: []string{"A"}, Probs: []float32{1}}
	table.Rows = Rows(table.Text)
	file := filepath.Join(t.TempDir(), "sure.html")
	writePage(t, file, table, table.Rows, table.Labels)
	b := openBrowser(t, file, t.TempDir())
	for _, keys := range []string{"a", "f"} { // with a line, and without
		b.keys(keys)
		there := b.look("list")
		b.keys("Shift+Tab") // to the control ahead; Tab may leave the page
		var focus string
		if b.eval(`document.activeElement.id`, &focus); focus == "list" {
			t.Fatal("Shift and Tab leave the keys with the lines")
		}
		if b.look("list") == there {
			t.Errorf("%s: the lines look the same with the keys and without", keys)
		}
		b.keys("Escape")
	}
}

// In a narrow window lines are higher than their chunk is believed to be until it is seen;
// the line that a filter leaves the current one stays in view when that comes out.
func TestHTMLFilterInNarrowBrowser(t *testing.T) {
	table := &Table{URI: "long.txt", Classes: []string{"A"}}
	r := rand.New(rand.NewPCG(0, 0)) // with which the last key left it below the lines
	for i := range 1500 {
		table.Text = fmt.Appendf(table.Text, "line %d%s\n", i, strings.Repeat(" and more", r.IntN(40)))
		table.Labels = append(table.Labels, "A")
		table.Probs = append(table.Probs, []float32{.3, .9}[min(1, r.IntN(40))])
	}
	table.Rows = Rows(table.Text)
	file := filepath.Join(t.TempDir(), "long.html")
	writePage(t, file, table, table.Rows, table.Labels)
	b := openBrowser(t, "", t.TempDir())
	b.size(320, 700)
	b.open(file)
	for i, key := range strings.Fields("n Enter f n Shift+G f f Shift+G Enter Shift+G Shift+G p f n f g f n n n f f n f Shift+G n n n f n f f n f g Enter f n f") {
		b.keys(key)
		b.paint()
		var off [2]float64 // above the lines, and below
		b.eval(`(() => {
			const row = document.querySelector(".row.current").getBoundingClientRect(), list = document.getElementById("list").getBoundingClientRect();
			return [list.top - row.top, row.bottom - list.bottom];
		})()`, &off)
		if max(off[0], off[1]) > 1 {
			t.Errorf("key %d, %s: the current line is %.0f pixels above the lines in view and %.0f below", i+1, key, off[0], off[1])
		}
	}
}

// A page that one comes back to begins anew or is as it was left, and its controls say
// so: browsers keep what they were set to, unless a page asks them not to, and some keep
// the whole page.
func TestHTMLComeBackInBrowser(t *testing.T) {
	table, dir := shortTable(), t.TempDir()
	file, other := filepath.Join(dir, "short.txt.html"), filepath.Join(dir, "other.html")
	for name, page := range map[string][]byte{
		file:  WriteHTML(table, table.Rows, table.Labels),
		other: []byte(`<!DOCTYPE html><title>Another page</title><p id="status">It has no script.</p>`),
	} {
		if err := os.WriteFile(name, page, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := openBrowser(t, file, dir)
	const state = `(() => {
  const $ = (id) => document.getElementById(id);
  return [$("limit").value, $("percent").value, $("only").checked, ` + visible + `, (document.querySelector(".row.current .name") || {}).textContent, $("counts").textContent].join("; ");
})()`
	var begin, left, back string
	b.eval(state, &begin)
	b.keys("j")
	b.click("limit") // its middle, 50 %
	b.click("only")
	if b.eval(state, &left); left != "50; 50 %; true; 0; ; 2 lines, 0 doubtful, 0 changed" {
		t.Fatalf("the page that is left says %q", left)
	}
	b.open(other)
	b.comeBack(file)
	b.paint()
	// Firefox keeps the page, and WebKit does, but for its controls.
	kept := strings.Replace(begin, "A 90 %; 2 lines", "B 60 % ?; 2 lines", 1)
	if b.eval(state, &back); back != begin && (b.name == "chromium" || back != left && back != kept) {
		t.Errorf("come back to, the page says %q, want %q, %q or %q", back, begin, left, kept)
	}
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("the page complains: %s", c)
	}
}

// A page that the browser saved, as it stands then, works when it is opened: it begins
// anew, with each label once.
func TestHTMLSavedInBrowser(t *testing.T) {
	table, dir := shortTable(), t.TempDir()
	file, saved := filepath.Join(dir, "short.txt.html"), filepath.Join(dir, "saved.html")
	writePage(t, file, table, table.Rows, table.Labels)
	b := openBrowser(t, file, dir)
	const state = `(() => {
  const $ = (id) => document.getElementById(id);
  return [$("counts").textContent, $("filter").innerText, $("names").textContent, ` + visible + `, $("keys").open, $("labels").open, $("limit").value, $("percent").value, $("only").checked].join("; ");
})()`
	var want, got, page string
	b.eval(state, &want)
	b.keys("f", "2", "e")
	b.click("limit") // its middle, 50 %
	b.click("help")
	// Some browsers write down what controls are set to as well.
	b.eval(`["limit", "only"].forEach((id) => { const e = document.getElementById(id); e.defaultValue = e.value; e.defaultChecked = e.checked; }) || 0`, new(int))
	b.eval(`"<!DOCTYPE html>" + document.documentElement.outerHTML`, &page)
	if err := os.WriteFile(saved, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	b.open(saved)
	if b.eval(state, &got); got != want {
		t.Errorf("saved and opened, the page says %q, want %q", got, want)
	}
	var n int
	b.click("show1")
	if b.eval(visible, &n); n != 1 {
		t.Errorf("a click at a label leaves %d lines, want 1", n)
	}
}

// A document of one line opens about as fast as one of as many bytes in many lines, in
// one script and in several.
func TestHTMLLongLineInBrowser(t *testing.T) {
	dir := t.TempDir()
	b := openBrowser(t, "", dir)
	for name, text := range map[string]string{
		"latin": strings.Repeat("Pileus broad, convex to plane, margin incurved, then striate\n", 25000),
		"mixed": strings.Repeat("Pileus 日本 ру́с 3-5 cm\n", 15000),
	} {
		var took [2]float64
		for i, end := range []string{"\n", " "} {
			table := &Table{URI: "long.txt", Text: []byte(strings.ReplaceAll(text, "\n", end)), Classes: []string{"A"}}
			table.Rows = Rows(table.Text)
			table.Labels = slices.Repeat([]string{"A"}, len(table.Rows))
			file := filepath.Join(dir, fmt.Sprint(name, i, ".html"))
			writePage(t, file, table, table.Rows, table.Labels)
			b.open(file)
			took[i] = b.opening()
			var shown string
			b.eval(`[...document.querySelectorAll(".text")].map((e) => e.textContent).join("\n")`, &shown)
			if shown != strings.TrimSuffix(string(table.Text), "\n") {
				t.Errorf("%s: the page does not show the text", file)
			}
			var parts int
			if b.eval(`Math.max(...[...document.querySelectorAll(".text")].map((e) => e.childNodes.length))`, &parts); end == "\n" && parts != 1 {
				t.Errorf("%s: a short line stands in %d parts", file, parts)
			}
		}
		if took[1] > 4*took[0] {
			t.Errorf("%s: one line takes %.0f ms, many lines %.0f", name, took[1], took[0])
		}
		t.Logf("%s: many lines %.0f ms, one %.0f ms", name, took[0], took[1])
	}
}

// A line that is higher than the window, as short ones are in a browser that enlarges,
// is gone to at its begin, where its label and its number are.
func TestHTMLHighLineInBrowser(t *testing.T) {
	table := &Table{URI: "high.txt", Classes: []string{"A", "B"}}
	for i := range 300 {
		end, p := "\n", float32(.9)
		if i%100 == 50 {
			end, p = strings.Repeat(" and so on", 30)+"\n", .6
		}
		table.Text = fmt.Appendf(table.Text, "line %d%s", i, end)
		table.Labels = append(table.Labels, "A")
		table.Probs = append(table.Probs, p, .1)
	}
	table.Rows = Rows(table.Text)
	file := filepath.Join(t.TempDir(), "high.html")
	writePage(t, file, table, table.Rows, table.Labels)
	b := openBrowser(t, "", t.TempDir())
	b.size(320, 256) // 1280 by 1024, four times as large
	b.open(file)
	for _, key := range []string{"n", "n", "n", "p", "f"} {
		b.keys(key)
		b.paint()
		var at [3]float64
		b.eval(`(() => {
  const row = document.querySelector(".row.current").getBoundingClientRect(), list = document.getElementById("list").getBoundingClientRect();
  return [row.top - list.top, row.height, list.height];
})()`, &at)
		if at[1] <= at[2] || at[0] < -1 || at[0] > at[2]/2 {
			t.Errorf("%s: a line of %.0f pixels begins at %.0f of %.0f", key, at[1], at[0], at[2])
		}
	}
}

// A label that YEDDA cannot hold is not exported, where a line has it: its reader would
// take the closer for text.
func TestHTMLWrongLabelInBrowser(t *testing.T) {
	table := &Table{URI: "two.txt", Text: []byte("one\ntwo\n"), Classes: []string{"Key", "two words"}, Labels: []string{"Key", "two words"}}
	table.Rows = Rows(table.Text)
	dir := t.TempDir()
	file := filepath.Join(dir, "two.html")
	if err := os.WriteFile(file, WriteHTML(table, table.Rows, table.Labels), 0o600); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, file, dir)
	const wrong = `Not exported: YEDDA cannot hold the label "two words"; give its lines another.`
	var status string
	b.keys("e")
	if b.eval(`document.getElementById("status").textContent`, &status); status != wrong {
		t.Errorf("got %q, want %q", status, wrong)
	}
	b.keys("j", "1", "e") // the only file that there may be
	exported(t, filepath.Join(dir, "two.txt.ann"), []byte("[@one\ntwo#Key*]\n"))
}

// The list of labels lets go of the keys however it is closed, or the next command
// would look for a label in it, and give it to the line; it finds a label by its
// name, or by the mouse, and of lines with several labels gives all of them any.
func TestHTMLLabelListInBrowser(t *testing.T) {
	table := &Table{URI: "few.txt", Text: []byte("one\ntwo\nthree\n"), Classes: []string{"Figure", "Key", "Notes"}, Labels: []string{"Figure", "Key", "Notes"}}
	table.Rows = Rows(table.Text)
	dir := t.TempDir()
	file := filepath.Join(dir, "few.html")
	writePage(t, file, table, table.Rows, table.Labels)
	b := openBrowser(t, "", dir)
	for i, c := range []struct{ keys, want string }{
		{"l Enter k f", "Figure Key Notes"},
		{"l Escape k f", "Figure Key Notes"},
		{"#choose #cancel k f", "Figure Key Notes"},
		{"#choose Enter k f", "Figure Key Notes"},
		{"#choose #name2 j f", "Key Key Notes"},
		{"l #name1 k f", "Figure Key Notes"},
		{"l N o Enter f", "Notes Key Notes"},
		{"j l F i g u r e Enter k f", "Figure Figure Notes"},
		{"j j l N Enter", "Figure Key Notes"}, // and not "no label"
		{"l e y Enter k f", "Key Key Notes"},
		{"l x Enter k f", "Figure Key Notes"},
		{"j l ArrowDown ArrowDown Enter k f", "Figure Notes Notes"},
		{"l ArrowUp ArrowUp Enter j f", "none Key Notes"},
		{"Shift+J Shift+J l Enter", "Figure Key Notes"},
		{"Shift+J Shift+J l N Enter", "Notes Notes Notes"},
		{"Shift+J Shift+J l K Enter u Shift+J l F Enter", "Figure Figure Notes"},
		{"Shift+J l Escape k f", "Figure Key Notes"},
	} {
		b.open(fmt.Sprintf("%s?%d", file, i))
		for _, k := range strings.Fields(c.keys) {
			if id, ok := strings.CutPrefix(k, "#"); ok {
				b.click(id)
			} else {
				b.keys(k)
			}
			b.paint()
		}
		var got, focus string
		b.eval(`[...document.querySelectorAll(".row .name")].map((e) => /^no label|[A-Za-z]+/.exec(e.textContent)[0].replace("no label", "none")).join(" ")`, &got)
		if b.eval(`document.activeElement.id`, &focus); got != c.want || focus != "list" {
			t.Errorf("%s: labels %s, keys go to %q; want %s, the lines", c.keys, got, focus, c.want)
		}
		b.keys("e") // or the browser would ask whether to leave
	}
}

// A keyboard of other letters than Latin ones, or of their marks (Thai, Devanagari), has the
// commands at their places, and letters that are Latin are what they say; a closed dialog
// gives the keys back.
func TestHTMLKeysInBrowser(t *testing.T) {
	table, dir := shortTable(), t.TempDir()
	file := filepath.Join(dir, "short.html")
	writePage(t, file, table, table.Rows, table.Labels)
	b := openBrowser(t, file, dir)
	var at int
	for _, c := range []struct {
		key  string
		want int
	}{
		{"т/KeyN", 1}, {"Л/KeyK", 0}, {"ξ/KeyJ", 1}, {"ל/KeyK", 0}, {"ğ/KeyJ", 0}, {"j/KeyC", 1}, {"k/KeyV", 0},
		{"\u0e48/KeyJ", 1}, {"\u0e32/KeyK", 0}, {"\u0e37/KeyN", 1}, {"\u0941/KeyG", 0},
	} {
		b.keys(c.key)
		if b.eval(current, &at); at != c.want {
			t.Errorf("%s goes to line %d, want %d", c.key, at, c.want)
		}
	}
	b.click("help")
	b.wait(`document.getElementById("keys").open`)
	b.click("close")
	b.wait(`!document.getElementById("keys").open`)
	b.eval(`document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true, repeat: true})) && 0`, &at)
	if b.eval(current, &at); at != 0 {
		t.Errorf("Enter, held down, goes to line %d", at)
	}
	b.keys("Enter")
	var open bool
	if b.eval(`document.getElementById("keys").open`, &open); open {
		t.Error("Enter opens the keys again, behind a click at Close")
	}
	if b.eval(current, &at); at != 1 {
		t.Errorf("Enter goes to line %d, want the doubtful one", at)
	}
	b.keys("e")
}
