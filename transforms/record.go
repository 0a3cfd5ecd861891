package transforms

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
)

// What stands in an output folder beside the outputs. Package input spells out two.
const (
	DoneFolder     = "_done"     // a Done record a document
	RejectedFolder = "_rejected" // a Reject record a document
	TempFolder     = "_tmp"      // half-written files, gone when the run ends
	LockFile       = "_lock"
	ManifestFile   = "_manifest.jsonl" // all Done records
	RejectedFile   = "_rejected.jsonl" // all Reject records
)

// Records are the places of a run's own files for a document.
var Records = []input.Output{{Folder: DoneFolder, Suffix: ".json"}, {Folder: RejectedFolder, Suffix: ".json"}, {Folder: TempFolder}}

// Done is the record that a document was labelled, written after its outputs.
// Document, InputSHA256, Model and Settings say whether it still holds.
type Done struct {
	Document    string           `json:"document"` // its Name
	Bytes       string           `json:"document_base64,omitempty"`
	Input       string           `json:"input"` // where it was read
	InputBytes  string           `json:"input_base64,omitempty"`
	InputSHA256 string           `json:"input_sha256"`
	Model       string           `json:"model"` // its hash
	Settings    string           `json:"settings"`
	Outputs     []string         `json:"outputs"`  // below the output folder
	CRC32C      []uint32         `json:"crc32c"`   // of Outputs
	Lines       int              `json:"lines"`    // with ink
	Labels      map[string]int64 `json:"labels"`   // lines of each label
	Doubtful    int              `json:"doubtful"` // lines whose label is less than 80 % probable
	Warnings    int              `json:"warnings,omitempty"`
	Versions    string           `json:"versions,omitempty"`
	Time        time.Time        `json:"time"`

	// CRC-32C of outputs in formats that only runs before this one had.
	Earlier map[string]uint32 `json:"earlier,omitempty"`
}

// Reject is the record of a Rejection.
type Reject struct {
	Document    string    `json:"document"`
	Bytes       string    `json:"document_base64,omitempty"`
	Input       string    `json:"input"`
	InputBytes  string    `json:"input_base64,omitempty"`
	Stage       string    `json:"stage"`
	Reason      string    `json:"reason"`
	InputSHA256 string    `json:"input_sha256,omitempty"`
	Run         string    `json:"run,omitempty"` // Options.Run
	Time        time.Time `json:"time"`
}

// recordLimit bounds what is read of a record, in bytes.
const recordLimit = 1 << 20

// base64Name is name in base64 where it is no UTF-8, which JSON cannot hold.
func base64Name(name []byte) string {
	if utf8.Valid(name) {
		return ""
	}
	return base64.StdEncoding.EncodeToString(name)
}

// nameOf is the name that a record has as text and by base64Name.
func nameOf(text, inBase64 string) string {
	if b, err := base64.StdEncoding.DecodeString(inBase64); err == nil && len(b) > 0 {
		return string(b)
	}
	return text
}

func (o *Options) donePath(name string) string {
	return store.Join(string(o.Output), DoneFolder, name+".json")
}

// rejectedPath is where the record of a rejection lies: under the document's
// name, or the hash of one that leads out of the folder. Where the store cannot
// hold the name, as one that is too long, the caller hashes it.
func (o *Options) rejectedPath(name string) string {
	if !o.inside(name) {
		name = hashed(name)
	}
	return store.Join(string(o.Output), RejectedFolder, name+".json")
}

// inside reports whether a document of that name has its outputs in the output
// folder: "../x" has not, nor `..\x` or "C:x" on Windows. Objects of gs:// are in
// no folder.
func (o *Options) inside(name string) bool {
	return store.Remote(string(o.Output)) || filepath.IsLocal(filepath.FromSlash(name))
}

// reserved reports whether a path below the output folder begins with a name that is
// the run's own; a disk may take its letters for either case.
func reserved(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return slices.ContainsFunc([]string{DoneFolder, RejectedFolder, TempFolder, LockFile, ManifestFile, RejectedFile, IndexFile}, func(own string) bool {
		return strings.EqualFold(first, own)
	})
}

// misplaced says why a document of that name cannot have its outputs in the
// output folder, or nil.
func (o *Options) misplaced(name string) error {
	if !o.inside(name) {
		return errors.New("its output would not lie in the output folder; rename the document")
	}
	if i := slices.IndexFunc(o.outputs(name), reserved); i >= 0 {
		return fmt.Errorf("its output would be %s, where the run keeps its own files; rename the document or its folder", o.outputs(name)[i])
	}
	return nil
}

func hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// outputStore is the store of the output folder.
func (o *Options) outputStore(ctx context.Context) (store.Store, error) {
	st, err := store.WithTemp(ctx, string(o.Output), store.Join(string(o.Output), TempFolder))
	if err == nil && o.unwritten {
		st = store.Unwritten(st)
	}
	return st, err
}

// isDone reports whether the record of d, of which name and SHA-256 are known, holds
// for these bytes, this model and these settings, and its outputs are there. A record
// that cannot be understood does not hold, nor that of X.txt for X.txt.ann, whose bytes
// mean another text, nor the other way. An output may be edited since, but not empty
// where it was not: a power cut leaves such files. What is done is rejected no more.
func (o *Options) isDone(ctx context.Context, d *Document) (bool, error) {
	name, annotated := string(d.Name), bytes.HasSuffix(d.URI, []byte(".ann"))
	st, err := o.outputStore(ctx)
	if err != nil {
		return false, err
	}
	r, err := o.doneRecord(ctx, st, name)
	if r == nil || !o.holds(r, hex.EncodeToString(d.SHA256[:])) || strings.HasSuffix(nameOf(r.Input, r.InputBytes), ".ann") != annotated {
		return false, err
	}
	for i, out := range o.outputs(name) {
		obj, err := st.Stat(ctx, store.Join(string(o.Output), out))
		switch {
		case errors.Is(err, store.ErrNotExist), errors.Is(err, store.ErrNotFile), badName(err):
			return false, nil
		case err != nil:
			return false, err
		case obj.Size == 0 && i < len(r.CRC32C) && r.CRC32C[i] != 0: // of nothing it is 0
			return false, nil
		}
	}
	return true, o.deleteRejection(ctx, st, name)
}

// checkOverwrite rejects d where its outputs must not be written over: somebody has
// edited one of them or put a pipe there, or they are another document's, which is still
// there, which Options.Force writes over, or a folder stands there. It also returns the
// record of them, if any.
func (o *Options) checkOverwrite(ctx context.Context, st store.Store, d *Document) (*Done, *Rejection, error) {
	name := string(d.Name)
	r, err := o.doneRecord(ctx, st, name)
	if r == nil || err != nil {
		return r, nil, err
	}
	input := nameOf(r.Input, r.InputBytes)
	if !o.Force && strings.TrimSuffix(input, ".ann") != strings.TrimSuffix(string(d.URI), ".ann") && (d.SHA256 == [32]byte{} || r.InputSHA256 != hex.EncodeToString(d.SHA256[:])) && !sameFile(input, string(d.URI)) {
		there, err := exists(ctx, input)
		if err != nil { // it may be there
			input += fmt.Sprintf(" (%v)", err)
		}
		if there || err != nil {
			return r, d.reject("write", fmt.Errorf("its outputs would take the place of those of %s; choose another --output, or give both in one --input", input)), nil
		}
	}
	sums := r.sums()
	for _, out := range o.outputs(name) {
		sum, ok := sums[inJSON(out)]
		if !ok {
			continue
		}
		path := store.Join(string(o.Output), out)
		var data []byte
		if o.Force {
			_, err = st.Stat(ctx, path)
		} else {
			data, err = st.Read(ctx, path, 0)
		}
		switch {
		case errors.Is(err, store.ErrFolder):
			return r, d.reject("write", fmt.Errorf("%w; rename the document", err)), nil
		case o.Force:
		case errors.Is(err, store.ErrNotFile):
			return r, d.reject("write", fmt.Errorf("%w; move it away, or take --force to write over it", err)), nil
		case noRecord(err):
		case err != nil:
			return nil, nil, err
		case len(data) > 0 && crc32.Checksum(data, castagnoli) != sum:
			return r, d.reject("write", fmt.Errorf("%s was edited since it was written; move it to a folder of its own, or take --force to lose the edits", out)), nil
		}
	}
	return r, nil, nil
}

// sameFile reports whether two paths lead to one local file: by a link, or in letters of
// either case where the disk takes those for one name.
func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && store.Same(x, y)
}

// sums are the checksums of all outputs that r, as it was read, knows of.
func (r *Done) sums() map[string]uint32 {
	sums := map[string]uint32{}
	maps.Copy(sums, r.Earlier)
	for i, out := range r.Outputs[:min(len(r.Outputs), len(r.CRC32C))] {
		sums[out] = r.CRC32C[i]
	}
	return sums
}

// inJSON is a path as it comes back from JSON, which cannot hold what is no UTF-8.
func inJSON(path string) string { return string([]rune(path)) }

// split separates the formats of which r knows no output (fresh) from the others (old).
func (r *Done) split(formats []format, name string) (fresh, old []format) {
	sums := r.sums()
	for _, f := range formats {
		if slices.ContainsFunc(f.outputs, func(out input.Output) bool {
			_, ok := sums[inJSON(out.Of(name))]
			return ok
		}) {
			old = append(old, f)
		} else {
			fresh = append(fresh, f)
		}
	}
	return fresh, old
}

// deleteOutputs deletes outputs that are to be written again, and then their record.
// Should the run end before the new one is written, a record left behind would call the
// document done to a run of the former model and settings, and for an output left
// without a record nobody could tell whose it is.
func (o *Options) deleteOutputs(ctx context.Context, st store.Store, name string, r *Done) error {
	sums := r.sums()
	for _, out := range o.outputs(name) {
		if _, ok := sums[inJSON(out)]; !ok {
			continue
		}
		if err := remove(ctx, st, store.Join(string(o.Output), out)); err != nil {
			return err
		}
	}
	return remove(ctx, st, o.donePath(name))
}

// writtenByThisRun reports whether an output without a record is of this run: of an
// earlier try of the bundle, which may have had another device.
func (o *Options) writtenByThisRun(ctx context.Context, st store.Store, path string) bool {
	if o.Began == 0 {
		return false
	}
	obj, err := st.Stat(ctx, path)
	return err == nil && obj.Modified.UnixNano() >= o.Began
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// doneRecord is the Done record of a document, nil where there is none that can be
// understood.
func (o *Options) doneRecord(ctx context.Context, st store.Store, name string) (*Done, error) {
	data, err := st.Read(ctx, o.donePath(name), recordLimit)
	if noRecord(err) {
		return nil, nil
	}
	r := new(Done)
	if err != nil || json.Unmarshal(data, r) != nil {
		return nil, err
	}
	return r, nil
}

// holds reports whether r is of these bytes, this model and these settings.
func (o *Options) holds(r *Done, hash string) bool {
	return r.InputSHA256 == hash && r.Model == o.ModelHash && r.Settings == o.Settings
}

// noRecord says that a record cannot be read for what lies in its place, not
// for what the store does: it is not there, is no file, or far too large.
func noRecord(err error) bool {
	return errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrNotFile) || badName(err)
}

// deleteRejection deletes the record of a rejection of a document that is done, if
// there is one.
func (o *Options) deleteRejection(ctx context.Context, st store.Store, name string) error {
	if !o.Rejections {
		return nil
	}
	return remove(ctx, st, o.rejectedPath(name))
}

// remove deletes a record, if there is one.
func remove(ctx context.Context, st store.Store, path string) error {
	if err := st.Delete(ctx, path); err != nil && !badName(err) {
		return err
	}
	return nil
}

// wasRejected reports whether there is a record of the document's rejection.
func (o *Options) wasRejected(ctx context.Context, name string) (bool, error) {
	was, err := exists(ctx, o.rejectedPath(name))
	if was || err != nil {
		return was, err
	}
	return exists(ctx, o.rejectedPath(hashed(name)))
}

// exists reports whether there is a file of that very name; where there can be
// none, there is none.
func exists(ctx context.Context, uri string) (bool, error) {
	there, err := store.Exists(ctx, uri)
	if badName(err) {
		err = nil
	}
	return there, err
}
