package transforms

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/linnet-ml/linnet/transforms/store"
)

func TestIndex(t *testing.T) {
	out := t.TempDir()
	write := func(formats []string, docs ...Labelled) {
		t.Helper()
		writeAll(t, Options{Output: Path(out), Formats: formats}, docs...)
		if err := Merge(t.Context(), out); err != nil {
			t.Fatal(err)
		}
	}
	write([]string{"yedda"}, labelledOf("plain.txt", "one\n", "A"), labelledOf("html/\xff\xfe.txt", "one\n", "A"))
	if _, err := os.Stat(filepath.Join(out, IndexFile)); !os.IsNotExist(err) {
		t.Errorf("an index of no review page (%v)", err)
	}
	doubtful := labelledOf("\xff\xfe.txt", "one\n", "A")
	doubtful.Probs[0] = 0.7994
	write([]string{"html"},
		labelledOf(`sub/b "2%#?.txt`, "one\ntwo\n\nthree\n", "A", "<B>"),
		labelledOf("a<i>.txt", "one\n", "A"),
		doubtful)
	page := read(t, out, IndexFile)
	at := 0
	for _, want := range []string{
		"<h1>Documents to review: 3</h1>",
		`<th scope="col" aria-sort="ascending"><button>Document</button></th><th scope="col"><button>Lines</button></th><th scope="col"><button>Doubtful</button></th><th scope="col"><button>&lt;B&gt;</button></th><th scope="col"><button>A</button></th></tr>`,
		`<tr><td><a href="html/a%3Ci%3E.txt.html">a&lt;i&gt;.txt</a></td><td>1</td><td>0</td><td>0</td><td>1</td></tr>`,
		`<tr><td><a href="html/sub/b%20%222%25%23%3F.txt.html">sub/b &#34;2%#?.txt</a></td><td>3</td><td>0</td><td>1</td><td>2</td></tr>`,
		`<tr><td><a href="html/%FF%FE.txt.html">` + "\ufffd\ufffd" + `.txt</a></td><td>1</td><td>1</td><td>0</td><td>1</td></tr>`,
		`<th scope="row">All</th><td>5</td><td>1</td><td>1</td><td>4</td>`,
	} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("not there, or not in order: %s\n%s", want, page[at:])
		}
		at += i + len(want)
	}
	for _, element := range []string{"style", "script"} {
		_, text, _ := strings.Cut(page, "<"+element+">")
		text, _, _ = strings.Cut(text, "</"+element+">")
		sum := sha256.Sum256([]byte(text))
		if want := element + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"; text == "" || !strings.Contains(page, want) {
			t.Errorf("the policy does not allow the %s: no %s", element, want)
		}
	}
	if strings.Contains(page, "plain.txt") || strings.Contains(page, "<i>") || strings.Count(page, "<script") != 1 {
		t.Errorf("what does not belong there: %s", page)
	}
	for _, name := range []string{"a<i>.txt.html", `sub/b "2%#?.txt.html`, "\xff\xfe.txt.html"} {
		if _, err := os.Stat(store.Join(out, "html", name)); err != nil {
			t.Error(err)
		}
	}
}

// Names stand in their own order, not in that of their pages.
func TestIndexOrder(t *testing.T) {
	x := new(index)
	for _, name := range []string{"n1.txt.gz", "n1.txt", "n1.txt-old", "n1", "n1 (2)"} {
		x.docs = append(x.docs, indexed{path: reviewPage.Of(name)})
	}
	var page strings.Builder
	if err := x.page(&page); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, name := range []string{"n1", "n1 (2)", "n1.txt", "n1.txt-old", "n1.txt.gz"} {
		i := strings.Index(page.String(), ">"+name+"</a>")
		if i < at {
			t.Errorf("%s stands at %d, behind one at %d", name, i, at)
		}
		at = max(at, i)
	}
}

// A page of somebody's in the index's place stays, however large it is, and a run's own
// goes, or is written anew.
func TestIndexOfOthers(t *testing.T) {
	const large = 17 << 20
	for _, c := range []struct {
		begin string
		size  int64
		stays bool
	}{
		{"<html>", 6, true}, {"<html>", large, true}, {"<head>" + indexTitle, 1<<30 + 1, true},
		{"<head>" + indexTitle, 100, false}, {"<head>" + indexTitle, large, false}, {"", 0, false},
	} {
		out := t.TempDir()
		path := filepath.Join(out, IndexFile)
		if err := errors.Join(os.WriteFile(path, []byte(c.begin), 0o666), os.Truncate(path, c.size)); err != nil {
			t.Fatal(err)
		}
		err := (&Options{Output: Path(out), Formats: []string{"html"}}).checkIndex(t.Context())
		if errors.Is(err, ErrForeign) != c.stays || !c.stays && err != nil {
			t.Errorf("%s, %d bytes: checked with %v, want ErrForeign %v", c.begin, c.size, err, c.stays)
		}
		if err := Merge(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); (err == nil) != c.stays {
			t.Errorf("%s, %d bytes: after a run of no pages %v, want it to stay %v", c.begin, c.size, err, c.stays)
		}
	}
}

// A library has a million pages.
func TestIndexMemory(t *testing.T) {
	const pages, most = 20_000, 256 // bytes a page, the garbage collector's share left out
	x := new(index)
	held := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := held()
	o := Options{Formats: []string{"brat", "csv", "html", "jsonl", "treatments"}, ModelHash: strings.Repeat("0", 64), Settings: "label_set=collapsed format=brat,csv,html,jsonl,treatments"}
	for i := range pages {
		name := fmt.Sprintf("journal/volume/item%05d/page-%06d.txt", i/10, i)
		record, err := json.Marshal(Done{
			Document: name, Input: "/library/" + name, InputSHA256: o.ModelHash, Model: o.ModelHash, Settings: o.Settings, Outputs: o.outputs(name),
			CRC32C: make([]uint32, 6), Lines: 30, Labels: map[string]int64{"Description": 10, "Misc-exposition": 20, "Nomenclature": 0}, Time: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		x.add(record)
	}
	if each := (held() - before) / pages; len(x.docs) != pages || each > most {
		t.Errorf("the index holds %d of %d pages in %d bytes each, want at most %d", len(x.docs), pages, each, most)
	}
}
