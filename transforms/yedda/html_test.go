package yedda

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reviewCase is a document with labels on its inked lines.
type reviewCase struct {
	name   string
	table  *Table
	lines  []Line
	labels []string
}

func reviewOf(name string, text []byte, rows []Line, labels []string) reviewCase {
	c := reviewCase{name: name, table: tableOf(name, text, rows, labels), lines: Inked(text, rows)}
	row := 0
	for _, line := range c.lines {
		label := ""
		if row < len(rows) && rows[row] == line {
			label = labels[row]
			row++
		}
		c.labels = append(c.labels, label)
	}
	return c
}

func writePage(t *testing.T, file string, table *Table, lines []Line, labels []string) {
	t.Helper()
	if err := os.WriteFile(file, WriteHTML(table, lines, labels), 0o600); err != nil {
		t.Fatal(err)
	}
}

func reviewCases(t *testing.T) (cases []reviewCase) {
	add := func(name string, src []byte) {
		d := Parse(src)
		rows := Rows(d.Text)
		cases = append(cases, reviewOf(name, d.Text, rows, d.LineLabels(rows)))
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "annotated", "*.ann"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no annotated documents: %v", err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		add(filepath.Base(file), src)
	}
	for _, c := range formatCases {
		add(c.name, []byte(c.src))
	}
	// Texts that hold markup, form feeds and all kinds of white space and
	// damage, with three labels in turn.
	var bytes256 []byte
	for i := range 256 {
		bytes256 = append(bytes256, byte(i), 'x')
	}
	for i, text := range []string{
		"[@a#X*]\n[[@@b*]#Label*]#L*]\n@Page-header*]\n[@#Literal*]\n",
		"#A*]#" + strings.Repeat("a", 50) + "*]\n#" + strings.Repeat("a", 51) + "*]\n#1*]#-*]\n@A*]*]#B*]",
		"[\f@a\n#X\f*]\n[@\f\fb\f\n\f\n\fc\r\n\r\nd\r\ne\r\r\n\r",
		"a\n\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\u0085\n\u200b\n\u180e\nb\n\xc2\n\xe2\x80\n\xe3\x80\x81\n\ufeff\n",
		"\f\xc2\x85\f\xe2\x80\x80\f \fx\f\xe1\x9a\x80\f\xff\f\n\f\n\xe2\x81\f\x9f\n",
		string(bytes256),
		"\ufeffa\nb",
		"no end",
		"\n\n\n",
		"</script><script>alert(1)</script>\n<!--<script>\n&lt;\n",
	} {
		rows := Rows([]byte(text))
		labels := make([]string, len(rows))
		for k := range labels {
			labels[k] = []string{"Nomenclature", "Nomenclature", "Description", "", "Misc-exposition"}[k%5]
		}
		cases = append(cases, reviewOf(fmt.Sprint("text ", i), []byte(text), rows, labels))
	}
	return cases
}

// changedLabel is the label that the test gives the line numbered i of all inked
// lines; the script in exportAll does the same.
func changedLabel(names []string, old string, i int) string {
	k := slices.Index(names, old)
	if i%3 == 0 {
		k = (k + 1 + i) % len(names)
	}
	return names[k]
}

// exportAll runs the script of pages, as they stand in the files of the folder
// it is given, and writes what they export beside each: unchanged to .same and
// with other labels to .other.
const exportAll = `
const fs = require("fs"), vm = require("vm"), path = require("path");
const dir = process.argv[1];
for (const file of fs.readdirSync(dir).filter((f) => f.endsWith(".html"))) {
  const page = fs.readFileSync(path.join(dir, file), "utf8");
  const body = (open) => page.split(open)[1].split("</script>")[0];
  const script = body("<script>");
  const linnet = vm.runInThisContext("(() => {" + script + "\nreturn linnet; })()");
  const doc = linnet.load(JSON.parse(body('<script type="application/json" id="review">')), body('<script type="text/plain" id="text">'));
  fs.writeFileSync(path.join(dir, file + ".same"), linnet.yedda(doc));
  let n = 0;
  doc.labels.forEach((k, i) => {
    if (k < 0) return;
    if (n % 3 === 0) doc.labels[i] = (k + 1 + n) % doc.names.length;
    n++;
  });
  fs.writeFileSync(path.join(dir, file + ".other"), linnet.yedda(doc));
}
`

// The page's own export is Format of SpansOf, byte for byte.
func TestHTMLExport(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed, so the script of the page was not run")
	}
	check := func(t *testing.T, cases []reviewCase) {
		dir := t.TempDir()
		for i, c := range cases {
			writePage(t, filepath.Join(dir, fmt.Sprint(i, ".html")), c.table, c.lines, c.labels)
		}
		if out, err := exec.Command(node, "-e", exportAll, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for i, c := range cases {
			same, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i, ".html.same")))
			if want := Format(c.table.Text, SpansOf(c.table.Text, c.lines, c.labels)); err != nil || !bytes.Equal(same, want) {
				t.Errorf("%s: unchanged: got %q, want %q (%v)", c.name, same, want, err)
			}
			names := reviewNames(c.table.Classes)
			labels := make([]string, len(c.labels))
			for k := range labels {
				labels[k] = changedLabel(names, c.labels[k], k)
			}
			other, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i, ".html.other")))
			if want := Format(c.table.Text, SpansOf(c.table.Text, c.lines, labels)); err != nil || !bytes.Equal(other, want) {
				t.Errorf("%s: changed: got %q, want %q (%v)", c.name, other, want, err)
			}
			d := Parse(other)
			if !bytes.Equal(d.Text, c.table.Text) {
				t.Errorf("%s: the text does not come back", c.name)
				continue
			}
			got := d.LineLabels(c.table.Rows)
			for row, k := 0, 0; row < len(got); k++ {
				if c.lines[k] != c.table.Rows[row] {
					continue // nobody can read it, so it is no row
				}
				if got[row] != labels[k] {
					t.Errorf("%s: row %d is read as %q, want %q", c.name, row, got[row], labels[k])
				}
				row++
			}
		}
	}
	t.Run("cases", func(t *testing.T) { check(t, reviewCases(t)) })
	t.Run("corpus", func(t *testing.T) {
		if testing.Short() {
			t.Skip("reads the whole corpus")
		}
		var cases []reviewCase
		n := 0
		corpus(t, func(t *testing.T, name string, src []byte) {
			if n++; n%13 == 0 { // a few are enough
				d := Parse(src)
				rows := Rows(d.Text)
				cases = append(cases, reviewOf(name, d.Text, rows, d.LineLabels(rows)))
			}
		})
		check(t, cases)
	})
}

// exportSearches exports the page in the file it is given, and prints how many
// bytes were looked at to find some, for each byte of the text.
const exportSearches = `
const page = require("fs").readFileSync(process.argv[1], "utf8");
const body = (open) => page.split(open)[1].split("</script>")[0];
const linnet = require("vm").runInThisContext("(() => {" + body("<script>") + "\nreturn linnet; })()");
const find = Uint8Array.prototype.indexOf;
let bytes = 0;
Uint8Array.prototype.indexOf = function (what, from) {
  const at = find.call(this, what, from);
  bytes += (at < 0 ? this.length : at) - (from || 0);
  return at;
};
const doc = linnet.load(JSON.parse(body('<script type="application/json" id="review">')), body('<script type="text/plain" id="text">'));
linnet.yedda(doc);
console.log(bytes / doc.text.length);
`

// The page's own export looks at each byte a few times, however many there are.
func TestHTMLExportLinear(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed, so the script of the page was not run")
	}
	for _, line := range []string{"Agaricus\n", "a\fb\n", "[@a#X*]\n", "a\n\n", "[@a\n", "#X*]\n", "\f\n"} {
		text := []byte(strings.Repeat(line, 3000))
		rows := Rows(text)
		c := reviewOf(line, text, rows, slices.Repeat([]string{"Key"}, len(rows)))
		file := filepath.Join(t.TempDir(), "page.html")
		writePage(t, file, c.table, c.lines, c.labels)
		out, err := exec.Command(node, "-e", exportSearches, file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if times, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64); err != nil || times > 10 {
			t.Errorf("%q: each byte is looked at %s times, %v; want 10 at most", line, strings.TrimSpace(string(out)), err)
		}
	}
}

var (
	scriptElement = regexp.MustCompile(`(?s)<script[^>]*>(.*?)</script>`)
	styleElement  = regexp.MustCompile(`(?s)<style>(.*?)</style>`)
)

// Nothing of a document becomes markup of the page, and nothing but the page's
// own style and script is let in.
func TestHTMLKeepsTextOut(t *testing.T) {
	const evil = `</script></title><script>alert("1")</script><img src=x onerror=alert(1)>{{script}}` + "\u2028\xff"
	text := []byte(evil + "\n" + evil)
	rows := Rows(text)
	for _, name := range []string{"a.txt", evil} {
		table := &Table{URI: name, Text: text, Rows: rows, Labels: []string{evil, "B"}, Classes: []string{evil, "B"}, Probs: []float32{.5, .5, .1, .9}}
		page := WriteHTML(table, rows, table.Labels)
		for _, bad := range []string{"<img", "alert(1)>", "alert(\"1\")", "src=", "href=", "url(", "http:", "https:", "@import", " style=", " onclick"} {
			// What remains of evil's letters stands inside JSON and titles, with
			// < and > escaped.
			clean := bytes.ReplaceAll(page, []byte("&lt;img src=x onerror=alert(1)&gt;"), nil)
			clean = bytes.ReplaceAll(clean, []byte(`\u003cimg src=x onerror=alert(1)\u003e`), nil)
			if i := bytes.Index(clean, []byte(bad)); i >= 0 {
				t.Errorf("%q is in the page: …%s…", bad, clean[max(0, i-40):min(len(clean), i+40)])
			}
		}
		scripts := scriptElement.FindAllSubmatch(page, -1)
		if len(scripts) != 3 || bytes.Count(page, []byte("<script")) != 3 || bytes.Count(page, []byte("</script")) != 3 {
			t.Fatalf("%d scripts, want 3", len(scripts))
		}
		policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindSubmatch(page)
		if policy == nil {
			t.Fatal("no policy")
		}
		want := strings.NewReplacer("'", "&#39;").Replace("default-src 'none'; style-src " + hashSource(string(styleElement.FindSubmatch(page)[1])) +
			"; script-src " + hashSource(string(scripts[2][1])) + "; base-uri 'none'; form-action 'none'")
		if string(policy[1]) != want {
			t.Errorf("policy %s, want %s", policy[1], want)
		}
		if got, err := base64.StdEncoding.DecodeString(string(scripts[1][1])); err != nil || !bytes.Equal(got, text) {
			t.Errorf("the page carries %q (%v)", got, err)
		}
		var doc reviewDocument
		if err := json.Unmarshal(scripts[0][1], &doc); err != nil || !slices.Equal(doc.Labels, []int{1, 2}) || !slices.Equal(doc.Sure, []int{500, 900}) {
			t.Errorf("the page says %+v (%v)", doc, err)
		}
	}
}

func TestReviewNames(t *testing.T) {
	for _, c := range []struct{ classes, want []string }{
		{nil, []string{""}},
		{[]string{"Key", "Title"}, []string{"", "Key", "Title"}},
		{[]string{"Abstract", "Description", "Key", "Nomenclature"}, []string{"", "Nomenclature", "Description", "Abstract", "Key"}},
	} {
		if got := reviewNames(c.classes); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.classes, got, c.want)
		}
	}
}

// Blank lines have no label, lines that nobody can read have the one that they
// are given, and no probability.
func TestHTMLLines(t *testing.T) {
	text := []byte("one\n\n\xff\n \ntwo")
	rows := Rows(text)
	table := &Table{URI: "a", Text: text, Rows: rows, Labels: []string{"A", "B"}, Classes: []string{"A", "B"}, Probs: []float32{.25, .75, .1, .9}}
	page := WriteHTML(table, Inked(text, rows), []string{"A", "Other", "B"})
	want := `{"name":"a","names":["","A","B","Other"],"labels":[1,-1,3,-1,2],"sure":[250,-1,-1,-1,900]}`
	if got := scriptElement.FindSubmatch(page)[1]; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDoubtful(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for p, want := range map[float32]bool{0: true, 0.5: true, 0.7994: true, 0.7996: false, 0.8: false, 1: false, 1.5: false, -0.5: false, inf: false, -inf: false, nan: false} {
		if got := Doubtful(p); got != want {
			t.Errorf("%v: got %t", p, got)
		}
	}
}

// TestHTMLRules holds the page to rules of HTML that a validator found broken: a label
// is that of one control, and main has no other role.
func TestHTMLRules(t *testing.T) {
	page := WriteHTML(&Table{}, nil, nil)
	page = page[:bytes.Index(page, []byte("<script"))]
	labels := regexp.MustCompile(`(?s)<label.*?</label>`).FindAll(page, -1)
	if len(labels) != 2 {
		t.Errorf("%d labels, want 2", len(labels))
	}
	control := regexp.MustCompile(`<(button|input|meter|output|progress|select|textarea)\b`)
	for _, label := range labels {
		if n := len(control.FindAll(label, -1)); n != 1 {
			t.Errorf("%d controls in %s", n, label)
		}
	}
	if main := regexp.MustCompile(`<main[^>]*\srole=[^>]*>`).Find(page); main != nil {
		t.Errorf("%s is no main part", main)
	}
}
