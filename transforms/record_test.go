package transforms

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzRecords holds the readers of records, the manifest and the index to what
// anyone may have left in their places: no panic, nothing held that is not of
// these bytes, and every line of a manifest one JSON object.
func FuzzRecords(f *testing.F) {
	const hash = "0a"
	o := Options{ModelHash: "m", Settings: "s"}
	good := `{"document":"a.txt","input":"/in/a.txt","input_sha256":"0a","model":"m","settings":"s","outputs":["html/a.txt.html"],"lines":3,"labels":{"Key":3},"time":"2026-01-02T03:04:05Z"}`
	for _, s := range []string{
		good, good[:40], good + good, "null", "[]", "0", `""`, "{}", "{}\n{}", "\x00\x00", strings.Repeat("[", 20000),
		`{"document":"\ud800","document_base64":"!!","outputs":["html/x.html"],"labels":{"<b>":-1},"lines":9223372036854775807}`,
		`{"document_base64":"Li4vLi4vZXRjL3g=","outputs":["html/../../etc/x.html"]}`,
		`{"input_sha256":"0a","INPUT_SHA256":"0b","model":"m","settings":"s"}`, `{"time":"yesterday"}`, `{"labels":[]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r := new(Done); json.Unmarshal(data, r) == nil && o.holds(r, hash) && !(bytes.Contains(data, []byte("0a")) || bytes.Contains(data, []byte(`\u`))) {
			t.Errorf("%q holds for bytes that it does not name", data)
		}
		var line bytes.Buffer
		if !compact(&line, data) {
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(line.Bytes(), &object); err != nil || object == nil || bytes.ContainsAny(line.Bytes(), "\n\r") {
			t.Errorf("the line %q is no JSON object: %v", &line, err)
		}
		x := new(index)
		x.add(line.Bytes())
		var out strings.Builder
		if err := x.page(&out); err != nil {
			t.Fatal(err)
		}
		page := out.String()
		if strings.Contains(page, "<b>") || strings.Contains(page, `href="..`) || strings.Contains(page, `href="/`) || strings.Contains(page, `href="javascript:`) {
			t.Errorf("the index of %q is %q", data, page)
		}
	})
}
