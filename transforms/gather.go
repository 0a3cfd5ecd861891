package transforms

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strings"
	"time"

	"github.com/linnet-ml/linnet/transforms/internal/pipe"
	"github.com/linnet-ml/linnet/transforms/store"
)

// Merge ends a run: it gathers the records and cleans up.
func Merge(ctx context.Context, output string) error {
	gathered := Gather(ctx, output)
	return cmp.Or(gathered, clean(ctx, output))
}

// Gather writes the records into the two files that people read: Done records
// into ManifestFile, Reject records into RejectedFile, each in the order of the
// store's listing; and writes IndexFile. It may be called while a run goes on,
// and holds a few MiB, and some 200 bytes for each review page.
func Gather(ctx context.Context, output string) error {
	o := Options{Output: Path(output)}
	var index index
	if err := o.gather(ctx, DoneFolder, ManifestFile, &index); err != nil {
		return err
	}
	if err := o.gather(ctx, RejectedFolder, RejectedFile, nil); err != nil {
		return err
	}
	return o.writeIndex(ctx, &index)
}

var gatherSeed = maphash.MakeSeed()

// Regather is Gather for one who calls it again and again: where the records are those
// of the call that returned before, which is 0 at first, it lists them and does no more.
func Regather(ctx context.Context, output string, before uint64) (now uint64, err error) {
	for _, folder := range []string{DoneFolder, RejectedFolder} {
		err := listBelow(ctx, store.Join(output, folder), func(o store.Object) error {
			now += maphash.String(gatherSeed, fmt.Sprintf("%d %d %s", o.Size, o.Modified.UnixNano(), o.Path))
			return nil
		})
		if err != nil {
			return before, err
		}
	}
	if now != before {
		err = Gather(ctx, output)
	}
	if err != nil {
		return before, err
	}
	return now, nil
}

// clean removes the temporary files, of which there are some after a run that
// was killed, and their folder where it holds nothing else. On gs:// there are none.
func clean(ctx context.Context, output string) error {
	if store.Remote(output) {
		return nil
	}
	temp := store.Join(output, TempFolder)
	err := listBelow(ctx, temp, func(o store.Object) error {
		if !store.Temporary(o.Path) {
			return nil
		}
		return store.Delete(ctx, o.Path)
	})
	if err == nil {
		store.Delete(ctx, temp) // which may hold something, or be a disk of its own; the next run tries again
	}
	return err
}

// listBelow calls fn with every file below a folder, which need not be there.
func listBelow(ctx context.Context, folder string, fn func(store.Object) error) error {
	st, err := store.For(ctx, folder)
	if err == nil {
		err = st.List(ctx, folder+"/", fn)
	}
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	return err
}

// CountDone counts the Done records below output that are newer than a time, and
// tells the newest's.
func CountDone(ctx context.Context, output string, after time.Time) (n int64, newest time.Time, err error) {
	err = listBelow(ctx, store.Join(output, DoneFolder), func(o store.Object) error {
		if o.Modified.After(after) {
			n++
		}
		if o.Modified.After(newest) {
			newest = o.Modified
		}
		return nil
	})
	return n, newest, err
}

// HasRecords reports whether there are records in a folder of output, DoneFolder or
// RejectedFolder.
func HasRecords(ctx context.Context, output, folder string) (bool, error) {
	return anyBelow(ctx, store.Join(output, folder), func(string) bool { return true })
}

// anyBelow reports whether there is a file below a folder, which need not be, whose
// path wanted says yes to.
func anyBelow(ctx context.Context, folder string, wanted func(path string) bool) (bool, error) {
	found := errors.New("found")
	err := listBelow(ctx, folder, func(o store.Object) error {
		if wanted(o.Path) {
			return found
		}
		return nil
	})
	if errors.Is(err, found) {
		return true, nil
	}
	return false, err
}

// errEmpty says that there was nothing to write.
var errEmpty = errors.New("empty")

// gatherBytes bounds the bytes of records in flight.
const gatherBytes = 4 << 20

// compact writes a record as one line without its end, and says whether it is a
// JSON object at all.
func compact(line *bytes.Buffer, record []byte) bool {
	record = bytes.TrimSpace(record)
	return bytes.HasPrefix(record, []byte("{")) && json.Compact(line, record) == nil
}

// gather writes the records of a folder into one file, a line each. A record
// that is not whole, such as the rest of one that a power cut left, is left out:
// its document will be done again.
func (o *Options) gather(ctx context.Context, folder, file string, index *index) error {
	st, err := o.outputStore(ctx)
	if err != nil {
		return err
	}
	path := store.Join(string(o.Output), file)
	err = st.Create(ctx, path, func(w io.Writer) error {
		if index != nil {
			index.docs, index.labels = nil, nil // it may be another try
		}
		var line bytes.Buffer
		empty := true
		err := o.records(ctx, st, folder, func(_ string, data []byte) error {
			line.Reset()
			if !compact(&line, data) {
				return nil
			}
			empty = false
			if index != nil {
				index.add(line.Bytes())
			}
			line.WriteByte('\n')
			_, err := w.Write(line.Bytes())
			return err
		})
		if err == nil && empty {
			return errEmpty
		}
		return err
	})
	switch {
	case errors.Is(err, errEmpty) && index != nil: // it says that a run began here
		return st.Write(ctx, path, nil)
	case errors.Is(err, errEmpty):
		return st.Delete(ctx, path)
	case err != nil:
		return fmt.Errorf("transforms: %s: %w", file, err)
	}
	return nil
}

// recordOverhead is what a record in flight takes beside its content, in bytes.
const recordOverhead = 1 << 10

// records calls fn with the path and bytes of every record in a folder, in the
// order of the store's listing.
func (o *Options) records(ctx context.Context, st store.Store, folder string, fn func(path string, data []byte) error) error {
	type record struct {
		path string
		data []byte
	}
	records := pipe.NewIO(gatherBytes, func(ctx context.Context, path string) (record, error) {
		data, err := st.Read(ctx, path, recordLimit)
		if noRecord(err) || errors.Is(err, store.ErrChanged) {
			return record{}, nil // made anew this moment, and the next gathering has it, or no record
		}
		return record{path, data}, err
	})
	defer records.Reset()
	add := func(r record, err error) error {
		if err != nil || r.data == nil {
			return err
		}
		return fn(r.path, r.data)
	}
	err := listBelow(ctx, store.Join(string(o.Output), folder), func(obj store.Object) error {
		if obj.Err != nil && !noRecord(obj.Err) { // a folder of records that cannot be listed
			return obj.Err
		}
		if !strings.HasSuffix(obj.Path, ".json") {
			return nil
		}
		return records.Push(ctx, obj.Path, obj.Size+recordOverhead, add)
	})
	if err != nil {
		return err
	}
	return records.Drain(ctx, add)
}
