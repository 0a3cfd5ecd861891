package yedda

import (
	"bytes"
	"encoding/csv"
	"strconv"
)

// WriteCSV writes a header and a record for each row: line (counted from 1
// among all lines of the text), label, confidence (the label's probability,
// empty where there is none) and text, without the CR of a CR LF. With
// probabilities (and where t has them) a column for each class follows, named
// like it. Bytes that are not UTF-8 stay as they are.
func WriteCSV(t *Table, probabilities bool) []byte {
	t.check()
	var out bytes.Buffer
	out.Grow(len(t.Text) + 32*len(t.Rows))
	w := csv.NewWriter(&out)
	write := func(record []string) {
		if err := w.Write(record); err != nil {
			panic("yedda: CSV into memory failed")
		}
	}
	record := []string{"line", "label", "confidence", "text"}
	probabilities = probabilities && t.hasProbs()
	if probabilities {
		record = append(record, t.Classes...)
	}
	write(record)
	var (
		numbers = lineNumbers{text: t.Text}
		digits  []byte
	)
	prob := func(p float32) string {
		digits = appendProb(digits[:0], p, "")
		return string(digits)
	}
	for i, row := range t.Rows {
		confidence := ""
		if p, ok := t.confidence(i); ok {
			confidence = prob(p)
		}
		line := bytes.TrimSuffix(t.Text[row.Start:row.End], []byte("\r"))
		record = append(record[:0], strconv.Itoa(numbers.of(row.Start)), t.Labels[i], confidence, string(line))
		if probabilities {
			for _, p := range t.probs(i) {
				record = append(record, prob(p))
			}
		}
		write(record)
	}
	w.Flush()
	return out.Bytes()
}
