package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/averaging"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
)

// partFlags name the parts of the documents.
var partFlags = [3]string{"--input", "--validation", "--test"}

// read reads the documents of --input, --validation and --test, in that order.
// Documents that cannot be read end the program, which tells how many there are: a model
// trained on the rest would be another one.
func (o *options) read(ctx context.Context) (parts [3][]train.Document, err error) {
	args := [3]cli.Strings{o.input, o.validation, o.test}
	all, err := input.New(slices.Concat(args[:]...), "", true)
	if err != nil {
		return parts, cli.Usagef("%w", err)
	}
	o.reader.InputSize = o.config.InputSize
	taken := map[string]bool{} // by validation and test, as stem
	var unread []string
	var first error
	failed := map[string]error{} // what a listing could not look at, such as a folder
	for i := len(parts) - 1; i >= 0; i-- {
		if len(args[i]) == 0 {
			continue
		}
		uris, err := o.list(ctx, i, args[i], taken, failed)
		if err != nil {
			return parts, err
		}
		labelled := 0
		for _, uri := range uris {
			where := averaging.Document{URI: transforms.Path(uri), Name: transforms.Path(all.Name(uri))}
			d, err := train.Document{}, failed[uri]
			if err == nil {
				d, err = o.reader.Read(ctx, where)
			}
			if err != nil && (ctx.Err() != nil || store.Remote(uri)) { // gs:// is asked for minutes
				return parts, err
			}
			if err != nil {
				unread, first = append(unread, uri), cmp.Or(first, err)
				continue
			}
			if i == 0 {
				o.documents = append(o.documents, where)
			}
			for _, l := range d.Labels {
				if l != "" {
					labelled++
				}
			}
			parts[i] = append(parts[i], d)
		}
		if labelled == 0 && first == nil {
			err := fmt.Errorf("%s has no annotated line in %s; name files with YEDDA annotation (*.txt.ann)", partFlags[i], cli.Some(uris))
			if broken := o.reader.Warnings; len(broken) > 0 {
				err = fmt.Errorf("%w, %s; %s", err, cli.Markup, cli.Some(broken))
			}
			return parts, err
		}
		if o.verbosity > 0 {
			fmt.Fprintf(os.Stderr, "%s: %s, %s with a label\n", partFlags[i], cli.Plural(int64(len(uris)), "document"), cli.Plural(int64(labelled), "line"))
			if len(o.reader.Warnings) > 0 {
				cli.Warnf("%s: %s", partFlags[i], cli.Some(o.reader.Warnings))
			}
		}
		o.reader.Warnings = nil
	}
	if len(unread) > 1 {
		first = fmt.Errorf("%w; nor can %s be read", first, cli.Some(unread[1:]))
	}
	return parts, first
}

// crop reads parts of the training documents as documents of their own.
func (o *options) crop(ctx context.Context, t *train.Options) error {
	for _, c := range train.Crops(t.Train, &t.Config, o.cropShare) {
		where := o.documents[c.Document]
		where.First, where.End, where.Setting = c.First, c.End, c.Setting
		d, err := o.reader.Read(ctx, where)
		if err != nil {
			return err
		}
		o.documents = append(o.documents, where)
		t.Crops = append(t.Crops, d)
	}
	o.reader = averaging.Reader{} // texts are needed no more
	return nil
}

// list lists the documents of part i, less those that the parts behind it have
// taken, and takes them.
func (o *options) list(ctx context.Context, i int, args []string, taken map[string]bool, failed map[string]error) (uris []string, err error) {
	set, err := input.New(args, "", true)
	if err != nil {
		return nil, cli.Usagef("%w", err)
	}
	_ = set.Walk(ctx, func(input.File) error { return nil }) // for LeaveOut; the next one tells of errors
	if earlier := set.LeaveOut(); earlier != "" && o.verbosity > 0 {
		fmt.Fprintf(os.Stderr, "linnet: %s\n", earlier)
	}
	var left []string
	err = set.Walk(ctx, func(file input.File) error {
		if taken[stem(file.URI)] {
			left = append(left, file.URI)
		} else {
			uris, failed[file.URI] = append(uris, file.URI), file.Err
		}
		return nil
	})
	for _, uri := range uris {
		taken[stem(uri)] = true
	}
	if errors.Is(err, input.ErrNone) || errors.Is(err, input.ErrTwins) {
		return nil, cli.Usagef("%w", err)
	}
	if err != nil {
		return nil, err
	}
	if len(left) > 0 && len(uris) == 0 {
		return nil, cli.Usagef("%s: all that it names is in %s too, so nothing is left; name other documents", partFlags[i], [3]string{"--validation or --test", "--test"}[i])
	}
	if len(left) > 0 && o.verbosity > 0 {
		cli.Warnf("%s: left out as %s too: %s", partFlags[i], [3]string{"--validation or --test name them", "--test names them"}[i], cli.Some(left))
	}
	warnings := set.Passed()
	if i > 0 || len(o.teachers) == 0 { // who are learnt from instead of the labels
		warnings = append(warnings, set.Predicted())
	}
	for _, warning := range warnings {
		if warning != "" && o.verbosity > 0 {
			cli.Warnf("%s: %s", partFlags[i], warning)
		}
	}
	return uris, nil
}

// stem is what X.txt, its annotation X.txt.ann and brat's, X.ann, are called alike.
func stem(uri string) string { return strings.TrimSuffix(strings.TrimSuffix(uri, ".ann"), ".txt") }

// warnDocuments tells what in the documents looks like a mistake, but need not
// be one.
func warnDocuments(parts [3][]train.Document) {
	type place struct {
		part int
		name string
	}
	texts := map[[sha256.Size]byte]place{} // first ones, by what their lines say
	for i, docs := range parts {
		var bare []string
		var twice [2][]string // by the part that has the first one
		for _, d := range docs {
			if !slices.ContainsFunc(d.Labels, func(l string) bool { return l != "" }) {
				bare = append(bare, d.Name)
			}
			const short = 5 // lines; such a document may be what it is by chance
			text := sha256.Sum256(fmt.Append(nil, d.Features.IDs))
			if first, ok := texts[text]; !ok {
				texts[text] = place{i, d.Name}
			} else if len(d.Labels) >= short && (first.part < i || i == 0) {
				twice[first.part] = append(twice[first.part], fmt.Sprintf("%s (%s)", d.Name, first.name))
			}
		}
		if len(bare) > 0 {
			cli.Warnf("%s: no line has a label in %s", partFlags[i], cli.Some(bare))
		}
		if len(twice[0]) > 0 && i == 0 {
			cli.Warnf("--input: the same text twice, such as in YEDDA and in brat: %s", cli.Some(twice[0]))
		} else if len(twice[0]) > 0 {
			cli.Warnf("%s: the same text is trained on in --input: %s", partFlags[i], cli.Some(twice[0]))
		}
		if len(twice[1]) > 0 {
			cli.Warnf("--test: the same text is in --validation: %s", cli.Some(twice[1]))
		}
	}
}
