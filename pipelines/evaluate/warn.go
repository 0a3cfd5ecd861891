package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms"
)

// warnOdd tells of labels that no one has named, of documents without any, of broken
// markup and of documents that are not in UTF-8.
func warnOdd(counters map[string]int64, score *scoreFn) {
	labels, predicted := oddOf(counters, oddPrefix), oddOf(counters, oddPredictedPrefix)
	warnBare("--input", labels)
	warnBare("--predictions", predicted)
	warnBroken("--input", labels)
	warnBroken("--predictions", predicted)
	if n := counters[transforms.ForeignCounter]; n > 0 {
		cli.Warnf("--input: %s not in UTF-8, most likely in Windows-1252 or Latin-1 (--verbosity=3 says which)", cli.Plural(n, "document"))
	}
	if n := counters[transforms.ForeignScriptCounter]; n > 0 {
		cli.Warnf("--input: %s in an 8-bit or multi-byte encoding that is not UTF-8 (--verbosity=3 says which)", cli.Plural(n, "document"))
	}
	warnUnknown("--input", labels, score)
	warnUnknown("--predictions", predicted, score)
}

// odd is how often something odd was met, and in which document, of several the first
// by name.
type odd struct {
	n     int64
	first string
}

// oddOf are the labels of the counters with a prefix.
func oddOf(counters map[string]int64, prefix string) map[string]odd {
	labels := map[string]odd{}
	for name, n := range counters {
		if pair, ok := namesOf(prefix, name); ok {
			o := labels[pair[0]]
			if o.n == 0 || pair[1] < o.first {
				o.first = pair[1]
			}
			o.n += n
			labels[pair[0]] = o
		}
	}
	return labels
}

// warnBare tells of documents in the files of a flag that have no label.
func warnBare(flag string, labels map[string]odd) {
	if bare, ok := labels[""]; ok {
		cli.Warnf("%s: %s without a label, such as %s", flag, cli.Plural(bare.n, "document"), bare.first)
		delete(labels, "")
	}
}

// warnBroken tells of broken markup in the files of a flag.
func warnBroken(flag string, labels map[string]odd) {
	if places, ok := labels[broken]; ok {
		cli.Warnf("%s: %s of broken markup, such as in %s (--verbosity=3 says where)", flag, cli.Plural(places.n, "place"), places.first)
		delete(labels, broken)
	}
}

// warnUnknown tells of labels in the files of a flag that are none of the known.
func warnUnknown(flag string, labels map[string]odd, score *scoreFn) {
	if len(labels) == 0 {
		return
	}
	var unknown []string
	for _, l := range slices.Sorted(maps.Keys(labels)) {
		unknown = append(unknown, fmt.Sprintf("%s (%s, such as in %s)", l, cli.Plural(labels[l].n, "line"), labels[l].first))
	}
	become := "they count as " + score.Config.OtherClass
	if score.Config.OtherClass == "" {
		become = "they are left out"
	}
	remedy := "correct what is misspelt"
	if score.Predictions != "" {
		remedy += ", or judge labels as they stand with --label_set=full"
	}
	cli.Warnf("%s: none of the known labels: %s: %s; %s", flag, cli.Some(unknown), become, remedy)
}
