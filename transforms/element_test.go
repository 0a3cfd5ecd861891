package transforms

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

func testDocument(text string) Document {
	d := Document{
		URI: []byte("/in/\xff.txt"), Name: []byte("\xff.txt"), Text: []byte(text),
		Spans:    []yedda.Span{{Start: 0, End: 3, Label: "Key"}, {Start: 1, End: 2, Label: "Description"}},
		Warnings: 300,
	}
	d.SHA256[0], d.SHA256[31] = 1, 2
	d.Rows = yedda.Rows(d.Text)
	return d
}

const twoRows = "Agaricus \xff\xfe nov.\r\n\n\fhabitat in pratis"

func TestCoders(t *testing.T) {
	d := testDocument(twoRows)
	e := Example{Document: d, InputSize: 300, Features: feature.Extract(d.Text, d.Rows, 300, 1)}
	e.made = e.Features
	l := Labelled{Document: d, Classes: []string{"A", "B"}, Labels: []uint16{1, 0}, Probs: []float32{.25, .75, 1, 0}, Other: "B"}
	j := Rejection{URI: d.URI, Name: d.Name, Stage: "read", Reason: "too large", SHA256: []byte{1}, Again: true}

	cases := map[string]struct {
		in      any
		encoded []byte
		decode  func([]byte) (any, error)
	}{
		"Document":       {d, encodeDocument(d), func(b []byte) (any, error) { return decodeDocument(b) }},
		"Document empty": {Document{Rows: []yedda.Line{}}, encodeDocument(Document{}), func(b []byte) (any, error) { return decodeDocument(b) }},
		"Example":        {e, encodeExample(e), func(b []byte) (any, error) { return decodeExample(b) }},
		"Labelled":       {l, encodeLabelled(l), func(b []byte) (any, error) { return decodeLabelled(b) }},
		"Rejection":      {j, encodeRejection(j), func(b []byte) (any, error) { return decodeRejection(b) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := c.decode(c.encoded)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "decoded", got, c.in)
			for n := range c.encoded {
				if _, err := c.decode(c.encoded[:n]); err == nil {
					t.Errorf("%d of %d bytes decode without an error", n, len(c.encoded))
				}
			}
			if _, err := c.decode(append(c.encoded, 0)); err == nil {
				t.Error("a byte too many decodes without an error")
			}
		})
	}
}

func TestDecodedSharesNothing(t *testing.T) {
	b := encodeDocument(testDocument(twoRows))
	d, err := decodeDocument(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	equal(t, "text", string(d.Text), twoRows)
}

func TestDecodeExampleOfAnotherVersion(t *testing.T) {
	b := encodeExample(Example{Document: testDocument(twoRows), InputSize: 300})
	b[len(b)-1]++ // the version is the last varint
	if _, err := decodeExample(b); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("got %v, want an error about the version", err)
	}
}

// Numbers that a program made wrong, such as the -1 of an index, come back as they were:
// where nobody asks for them they fail no run, and otherwise it is told of them.
func TestCodeNegative(t *testing.T) {
	d := testDocument(twoRows)
	d.Spans, d.Warnings = []yedda.Span{{Start: -1, End: 4, Label: "X"}, {Start: 2, End: math.MinInt}}, -1
	got, err := decodeDocument(encodeDocument(d))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "decoded", got, d)
	if _, err := decodeExample(encodeExample(Example{Document: d, InputSize: -3})); err == nil || !strings.Contains(err.Error(), "table of -3 rows") {
		t.Errorf("got %v, want an error about the table", err)
	}
}

// A Labelled made by hand comes back as it was, for Write to reject.
func TestCodeLabelsAmiss(t *testing.T) {
	for _, labels := range [][]uint16{{}, {0}, {0, 0}, {0, 0, 0}, {0, 1}} {
		l := Labelled{Document: testDocument(twoRows), Classes: []string{"A"}, Labels: labels, Probs: []float32{1}, Other: "A"}
		got, err := decodeLabelled(encodeLabelled(l))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "decoded", got, l)
	}
}

func TestDecodeExampleWithoutSize(t *testing.T) {
	if _, err := decodeExample(encodeExample(Example{Document: testDocument(twoRows)})); err == nil || !strings.Contains(err.Error(), "table of 0 rows") {
		t.Errorf("got %v, want an error about the table", err)
	}
}

func FuzzDecode(f *testing.F) {
	d := testDocument(twoRows)
	f.Add(encodeDocument(d))
	f.Add(encodeLabelled(Labelled{Document: d, Classes: []string{"A"}, Labels: []uint16{0, 0}, Probs: []float32{1, 1}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := decodeDocument(b); err == nil {
			again, err := decodeDocument(encodeDocument(d))
			if err != nil || !reflect.DeepEqual(again, d) {
				t.Errorf("encoded again: %v, %v", again, err)
			}
		}
		_, _ = decodeLabelled(b)
		_, _ = decodeRejection(b)
	})
}
