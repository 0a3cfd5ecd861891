package transforms

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// IndexFile is the page that names every document with a review page, with the
// number of its lines, of those that are doubtful and of those of each label. No
// output of a document ends in .html outside of the folder html.
const IndexFile = "index.html"

const indexStyle = `:root{color-scheme:light dark;--paper:#fff;--ink:#16191d;--line:#c9ced4;--bar:#f3f5f7;--link:#0b57d0}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e9ecef;--line:#3c434b;--bar:#1d2126;--link:#8ab4f8}}
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--paper);color:var(--ink);font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.25rem}
div{overflow-x:auto}
table{border-collapse:collapse}
th,td{padding:.2rem .75rem;border-bottom:1px solid var(--line);text-align:right;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere;min-width:12rem}
thead th,tfoot th,tfoot td{background:var(--bar)}
@media (max-width:40rem){body{padding:.5rem}th,td{padding:.2rem .35rem}th:first-child,td:first-child{min-width:6rem}}
@media print{div{overflow:visible}th,td{padding:.2rem .25rem}thead th+th{writing-mode:vertical-rl}body{padding:0}}
a{color:var(--link)}
button{padding:0;border:0;background:none;color:inherit;font:inherit;text-align:inherit;cursor:pointer}
button:hover{text-decoration:underline}
[aria-sort=ascending] button::after{content:" ↑"}
[aria-sort=descending] button::after{content:" ↓"}
:is(a,button):focus-visible{outline:3px solid var(--link);outline-offset:2px}`

//go:embed index.js
var indexScript string

// index holds what IndexFile says: the documents with a review page, of which there
// may be a million.
type index struct {
	docs   []indexed
	labels map[string]int // place in indexed.labels
}

type indexed struct {
	path            string // of the review page
	lines, doubtful int
	labels          []int64 // lines of each; zeros at the end are left out
}

// name is the document's.
func (d *indexed) name() string {
	return strings.TrimSuffix(strings.TrimPrefix(d.path, reviewPage.Folder+"/"), reviewPage.Suffix)
}

// add takes a Done record in if its document has a review page.
func (x *index) add(record []byte) {
	if !bytes.Contains(record, []byte(`"html/`)) {
		return
	}
	var r Done
	if json.Unmarshal(record, &r) != nil {
		return
	}
	path := reviewPage.Of(nameOf(r.Document, r.Bytes))
	if !strings.HasPrefix(path, "html/") || !slices.Contains(r.Outputs, inJSON(path)) { // not of ours: it leads elsewhere
		return
	}
	if x.labels == nil {
		x.labels = map[string]int{}
	}
	most := 0
	for label := range r.Labels {
		if _, ok := x.labels[label]; !ok {
			x.labels[label] = len(x.labels)
		}
		most = max(most, x.labels[label]+1)
	}
	d := indexed{path, r.Lines, r.Doubtful, make([]int64, most)}
	for label, n := range r.Labels {
		d.labels[x.labels[label]] = n
	}
	x.docs = append(x.docs, d)
}

// writeIndex writes IndexFile where any document has a review page, and otherwise
// deletes the one of a run before: its documents were labelled since. What no run
// wrote stays.
func (o *Options) writeIndex(ctx context.Context, x *index) error {
	st, err := o.outputStore(ctx)
	if err != nil {
		return err
	}
	there, ours, err := o.standingIndex(ctx, st)
	path := store.Join(string(o.Output), IndexFile)
	switch {
	case err != nil, there && !ours:
		return err
	case len(x.docs) > 0:
		return st.Create(ctx, path, x.page)
	case there:
		return st.Delete(ctx, path)
	}
	return nil
}

const indexTitle = "<title>Documents to review</title>" // soon after the page's begin

// standingIndex reports whether there is an IndexFile, and whether a run wrote it,
// which an empty one counts as, and one of a size that only millions of pages have
// does not.
func (o *Options) standingIndex(ctx context.Context, st store.Store) (there, ours bool, err error) {
	const indexLimit = 1 << 30 // a page with its pictures in it is as large as a run's
	data, err := st.Read(ctx, store.Join(string(o.Output), IndexFile), indexLimit)
	switch {
	case errors.Is(err, store.ErrFolder), errors.Is(err, store.ErrTooLarge):
		return true, false, nil
	case noRecord(err):
		return false, false, nil
	}
	return err == nil, len(data) == 0 || bytes.Contains(data, []byte(indexTitle)), err
}

// page writes IndexFile, in order of the names.
func (x *index) page(w io.Writer) error {
	docs := x.docs
	totals, lines, doubts := make([]int64, len(x.labels)), 0, 0
	for _, d := range docs {
		lines += d.lines
		doubts += d.doubtful
		for i, n := range d.labels {
			totals[i] += n
		}
	}
	slices.SortFunc(docs, func(a, b indexed) int { return strings.Compare(a.name(), b.name()) })
	columns := slices.Sorted(maps.Keys(x.labels))

	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1">
%s
<style>%s</style>
</head>
<body>
<main>
<h1>Documents to review: %d</h1>
<div>
<table>
<thead><tr><th scope="col" aria-sort="ascending"><button>Document</button></th>`, yedda.PagePolicy(indexStyle, indexScript), indexTitle, indexStyle, len(docs))
	for _, head := range append([]string{"Lines", "Doubtful"}, columns...) {
		fmt.Fprintf(out, `<th scope="col"><button>%s</button></th>`, html.EscapeString(head))
	}
	out.WriteString("</tr></thead>\n<tbody>\n")
	for _, d := range docs {
		fmt.Fprintf(out, `<tr><td><a href="%s">%s</a></td><td>%d</td><td>%d</td>`, html.EscapeString(escapePath(d.path)), html.EscapeString(string([]rune(d.name()))), d.lines, d.doubtful)
		for _, label := range columns {
			n := int64(0)
			if i := x.labels[label]; i < len(d.labels) {
				n = d.labels[i]
			}
			fmt.Fprintf(out, "<td>%d</td>", n)
		}
		out.WriteString("</tr>\n")
	}
	fmt.Fprintf(out, `</tbody>
<tfoot><tr><th scope="row">All</th><td>%d</td><td>%d</td>`, lines, doubts)
	for _, label := range columns {
		fmt.Fprintf(out, "<td>%d</td>", totals[x.labels[label]])
	}
	fmt.Fprintf(out, "</tr></tfoot>\n</table>\n</div>\n</main>\n<script>%s</script>\n</body>\n</html>\n", indexScript)
	return out.Flush()
}

// escapePath is a path as a URL below the page's own.
func escapePath(path string) string {
	elem := strings.Split(path, "/")
	for i, e := range elem {
		elem[i] = url.PathEscape(e)
	}
	return strings.Join(elem, "/")
}
