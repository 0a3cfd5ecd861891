package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
)

// parseLabelMap reads --label_map.
func parseLabelMap(values []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, v := range input.Split(values...) {
		some := map[string]string{}
		if strings.HasSuffix(v, ".json") {
			if err := cli.CheckURI("label_map", v); err != nil {
				return nil, err
			}
			data, err := store.Read(context.Background(), v, 0)
			switch {
			case errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrNotFile):
				return nil, cli.Usagef("--label_map: %w", err)
			case err != nil: // that it cannot be read is no wrong use
				return nil, fmt.Errorf("--label_map: %w", err)
			}
			if err := addLabels(some, data); err != nil {
				return nil, cli.Usagef("--label_map: %s: %w; it must hold one object of \"Label\": \"Class\"", v, err)
			}
		} else {
			label, class, ok := strings.Cut(v, "=")
			if !ok {
				return nil, cli.Usagef("--label_map: %q is no Label=Class", v)
			}
			some[strings.TrimSpace(label)] = strings.TrimSpace(class)
		}
		for _, label := range slices.Sorted(maps.Keys(some)) {
			if class, ok := labels[label]; ok && class != some[label] {
				return nil, cli.Usagef("--label_map: %q is both %q and %q; leave one of them out", label, class, some[label])
			}
		}
		maps.Copy(labels, some)
	}
	if len(labels) == 0 {
		return nil, cli.Usagef("--label_map is empty; name Label=Class pairs, or leave it out")
	}
	return labels, nil
}

// addLabels adds the object of "Label": "Class" that a file holds to labels.
func addLabels(labels map[string]string, file []byte) error {
	var object map[string]any
	file = bytes.TrimPrefix(file, []byte("\ufeff")) // as editors save it
	err := json.Unmarshal(file, &object)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other || err == nil && object == nil {
		return errors.New("it is no object")
	}
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(file)) // object has the last of what stands there twice
	_, _ = dec.Token()
	for dec.More() {
		label, _ := dec.Token()
		value, _ := dec.Token()
		class, ok := value.(string)
		if !ok {
			return fmt.Errorf("what %q stands for is no string", label)
		}
		name := label.(string)
		if other, ok := labels[name]; ok && other != class {
			return fmt.Errorf("%q is both %q and %q", label, other, class)
		}
		labels[name] = class
	}
	return nil
}

// warnLabels tells of labels that --label_map does not know, of labels and classes
// that the documents of --input have no line of, and of weights of no class.
func (o *options) warnLabels(parts [3][]train.Document, c *model.Config) {
	lines, all := map[string]int{}, map[string]int{} // by label, of --input and of all
	for i, docs := range parts {
		for _, d := range docs {
			for _, l := range d.Labels {
				if l == "" {
					continue
				}
				all[l]++
				if i == 0 {
					lines[l]++
				}
			}
		}
	}
	count := make([]int, len(c.Classes))
	var rest, unseen, empty []string
	for _, label := range slices.Sorted(maps.Keys(all)) {
		class := c.Class(label)
		if class >= 0 {
			count[class] += lines[label]
		}
		if _, named := c.LabelMap[label]; !named && (class < 0 || c.Classes[class] != label) {
			rest = append(rest, fmt.Sprintf("%s (%s)", label, cli.Plural(int64(all[label]), "line")))
		}
	}
	for label := range c.LabelMap {
		if lines[label] == 0 {
			unseen = append(unseen, label)
		}
	}
	for i, n := range count {
		if n == 0 {
			empty = append(empty, c.Classes[i])
		}
	}
	slices.Sort(unseen)
	if len(o.labelMap) > 0 && !o.restNamed && len(rest) > 0 {
		cli.Warnf("--label_map does not name %s: %s", cli.Some(rest), become(c))
	}
	if len(o.labelMap) > 0 && len(unseen) > 0 {
		cli.Warnf("--label_map: no line of --input has the label %s", cli.Some(unseen))
	}
	if len(empty) > 0 {
		cli.Warnf("--input: no line is of class %s", cli.Some(empty))
	}
	weights, _, _ := c.LossWeights() // which were checked
	for i, named := range [][]string{slices.Sorted(maps.Keys(weights)), c.FocalClasses()} {
		named = slices.DeleteFunc(named, func(l string) bool { return slices.Contains(c.Classes, l) })
		if len(named) > 0 {
			cli.Warnf("%s: no class is called %s: only what predict --label_set=full says is learnt so; name the class it becomes", [2]string{"--class_weights", "--focal_labels"}[i], cli.Some(named))
		}
	}
}

// warnUnknown tells of labels that nobody has named, neither --label_map nor the
// models there are, so that they become the class of the rest, and in a new full
// set of those that have too few lines for a class.
func (o *options) warnUnknown(parts [3][]train.Document, t *train.Options) {
	if len(o.labelMap) > 0 || o.restNamed { // warnLabels tells
		return
	}
	c := t.Config
	become := become(&c)
	fresh := t.Init == nil
	if fresh {
		c.FullClasses = nil // of these very labels
	}
	known := bundled.Known(&c)
	for i, docs := range parts {
		lines, first := map[string]int{}, map[string]string{}
		for _, d := range docs {
			for _, l := range d.Labels {
				if l == "" {
					continue
				}
				if lines[l] == 0 {
					first[l] = d.Name
				}
				lines[l]++
			}
		}
		var few, unknown []string
		for _, l := range slices.Sorted(maps.Keys(lines)) {
			n := cli.Plural(int64(lines[l]), "line")
			switch {
			case slices.Contains(c.Classes, l):
			case fresh && c.LabelSet == model.Full && model.IsLabel(l):
				if i == 0 && lines[l] < train.MinLines {
					few = append(few, fmt.Sprintf("%s (%s)", l, n))
				}
			case !slices.Contains(known, l):
				unknown = append(unknown, fmt.Sprintf("%s (%s, such as in %s)", l, n, first[l]))
			}
		}
		if len(few) > 0 {
			cli.Warnf("%s: fewer than %d lines have the label %s: %s", partFlags[i], train.MinLines, cli.Some(few), become)
		}
		if len(unknown) > 0 {
			cli.Warnf("%s: none of the known labels: %s: %s; correct what is misspelt, or name it in --label_map", partFlags[i], cli.Some(unknown), become)
		}
	}
}

// become says what becomes of lines whose label is no class.
func become(c *model.Config) string {
	if c.OtherClass == "" {
		return "they are left out"
	}
	return "they become " + c.OtherClass
}
