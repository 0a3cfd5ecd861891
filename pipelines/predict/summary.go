package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"
	"github.com/dustin/go-humanize"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
)

const noneRejected = "none of these documents was rejected before (without --retry_rejected new ones are labelled)"

// summary says where the result is and what it holds.
func (o *options) summary(w io.Writer, c *model.Config, result *runners.Result, p *transforms.Progress, took time.Duration) {
	n := result.Counters
	lines, output := n["lines"], cli.Printable(o.output)
	if n["documents"]+n["rejected"] == 0 && n["skipped"] > 0 {
		fmt.Fprintf(w, "%s: nothing to do, %s done before (--force labels them again)\n", output, cli.Plural(n["skipped"], "document"))
		return
	}
	if o.retryRejected && n["documents"]+n["rejected"] == 0 {
		fmt.Fprintf(w, "%s: nothing to do, %s\n", output, noneRejected)
		return
	}
	rate := ""
	if speed := cli.Rate(lines, took); speed != "0" && !o.watch { // which waits most of the time
		rate = fmt.Sprintf(" (%s lines/s)", speed)
	}
	fmt.Fprintf(w, "%s: %s, %s labelled in %s%s\n", output, cli.Plural(n["documents"], "document"), cli.Plural(lines, "line"), round(took), rate)
	_, classes, _ := c.Head(o.labelSet)
	width := 0
	for _, class := range classes {
		width = max(width, len(class))
	}
	for _, class := range classes {
		count := n[transforms.LabelCounter+class]
		if lines == 0 || count == 0 && len(classes) > 5 {
			continue
		}
		fmt.Fprintf(w, "  %-*s %12s %5.1f %%\n", width, class, cli.Count(count), 100*float64(count)/float64(lines))
	}
	if skipped := n["skipped"]; skipped > 0 {
		fmt.Fprintf(w, "%s done before and skipped (--force labels them again)\n", cli.Plural(skipped, "document"))
	}
	if n["warnings"] > 0 {
		fmt.Fprintf(w, "%s of broken markup in the inputs (--force --verbosity=3 says where)\n", cli.Plural(n["warnings"], "place"))
	}
	for _, foreign := range []struct{ counter, what, encoding string }{
		{transforms.ForeignCounter, "not in UTF-8, most likely in Windows-1252 or Latin-1", "WINDOWS-1252"},
		{transforms.ForeignScriptCounter, "in an 8-bit or multi-byte encoding that is not UTF-8", "ENCODING"},
	} {
		count, example := n[foreign.counter], ""
		if count == 0 || o.byDefault {
			continue
		}
		for name := range n {
			if uri, ok := strings.CutPrefix(name, foreign.counter+transforms.ForeignExample); ok && (example == "" || uri < example) {
				example = uri
			}
		}
		uri, _ := url.PathUnescape(example)
		convert := "; convert each with: " + cli.Printable(input.Iconv(uri, foreign.encoding))
		if o.watch && !o.foreign(uri) { // a watch counts what has been converted since; twice would spoil it
			convert = ""
		}
		fmt.Fprintf(w, "%s %s, whose letters beyond ASCII the model does not see (--force --verbosity=3 says which)%s\n",
			cli.Plural(count, "document"), foreign.what, convert)
	}
	if runners.Local() {
		fmt.Fprintf(w, "reading %v, features %v, model %v, writing %v, summed over all workers, waiting included; peak memory %s MB\n",
			round(p.Spent("read")), round(p.Spent("featurize")), round(p.Spent("predict")), round(p.Spent("write")), cli.Count(cli.PeakMemory()/1e6))
	}
	if onGPU := n[transforms.LinesCUDACounter]; onGPU > 0 {
		fmt.Fprintf(w, "%s on GPUs, %s on CPUs\n", cli.Plural(onGPU, "line"), cli.Count(n[transforms.LinesCPUCounter]))
	}
	if usage, ok := transforms.GPUUsage(n, result.Distributions); ok {
		tellGPUs(w, &usage, result.Gauges)
	}
	if fallen := n[transforms.FallenBackCounter]; fallen > 0 {
		var reasons []string
		for name := range n {
			if reason, ok := strings.CutPrefix(name, transforms.ReasonCounter); ok {
				reasons = append(reasons, reason)
			}
		}
		slices.Sort(reasons)
		fmt.Fprintf(w, "%s fell back to the CPU: %s\n", cli.Plural(fallen, "worker"), cli.Printable(strings.Join(reasons, "; ")))
	}
	if rejected := n["rejected"]; rejected > 0 {
		fmt.Fprintf(w, "%s rejected; %s says why\n", cli.Plural(rejected, "document"), store.Join(output, transforms.RejectedFile))
	}
}

// foreign says whether what stands at uri now seems to be in another encoding than UTF-8.
func (o *options) foreign(uri string) bool {
	data, err := store.Read(context.Background(), uri, int64(o.maxDocumentBytes))
	foreign, _ := input.Foreign(data)
	return err == nil && foreign
}

// tellGPUs says what NVML saw of the run's GPUs, and what that suggests.
func tellGPUs(w io.Writer, u *gpuinit.Usage, gauges map[string]metrics.GaugeValue) {
	fmt.Fprintf(w, "%s, %s while lines were labelled", u.Name, cli.Plural(int64(u.Samples), "sample"))
	if memory, ok := gauges[transforms.GPUMemoryGauge]; ok {
		fmt.Fprintf(w, "; at last %s in use", humanize.IBytes(uint64(memory.Value)))
	}
	if busy, ok := gauges[transforms.GPUUtilisationGauge]; ok {
		fmt.Fprintf(w, ", %d %% busy", busy.Value)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  \taverage\tleast\tmost")
	for _, row := range u.Table() {
		fmt.Fprintln(t, strings.TrimRight("  "+strings.Join(row, "\t"), "\t"))
	}
	t.Flush()
	if text := u.Advice(); text != "" {
		fmt.Fprintln(w, text)
	}
}

// tellPlan says what a run would do, and about how long that takes, from the
// speed at which a few of the documents go through the model and all are read.
func (o *options) tellPlan(ctx context.Context, opts transforms.Options, set *input.Set, files, size int64) error {
	plan, err := transforms.Plan(ctx, opts, set, 2*time.Second)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return misused(err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s, %s bytes in %s\n", cli.Plural(files, "document"), cli.Count(size), cli.Printable(o.what()))
	if o.retryRejected && plan.Done+plan.Rejected+plan.Documents == 0 {
		fmt.Fprintln(&out, noneRejected)
	}
	fmt.Fprintf(&out, "%s done before\n", cli.Plural(plan.Done, "document"))
	if plan.Rejected > 0 {
		fmt.Fprintf(&out, "%s that would be rejected, such as %s: %s\n", cli.Plural(plan.Rejected, "document"), cli.Printable(string(plan.Example.URI)), cli.Printable(plan.Example.Reason))
	}
	fmt.Fprintf(&out, "%s to label into %s: %s in about %s on %s of this machine, writing left out\n",
		cli.Plural(plan.Documents, "document"), cli.Printable(o.output), cli.Plural(plan.Lines, "line"), round(plan.Time), cli.Plural(int64(runtime.GOMAXPROCS(0)), "core"))
	_, err = os.Stdout.Write(out.Bytes())
	return err // such as that of a file on a full disk
}

// judge is the end of a run that came to its end: nil, or the error or status that
// the rejected documents make. Under --retry_rejected they are a share of all files
// that were listed. example is one of the rejections, if this process knows any.
func (o *options) judge(n map[string]int64, files int64, example string) error {
	rejected := n["rejected"]
	seen := n["documents"] + n["skipped"] + rejected
	if o.retryRejected {
		seen = max(seen, files)
	}
	if rejected == 0 {
		return nil
	}
	if example != "" {
		example = ", such as " + example
	}
	say := fmt.Errorf("%s of %s rejected%s; %s has them all", cli.Count(rejected), cli.Plural(seen, "document"), example, store.Join(o.output, transforms.RejectedFile))
	if !o.watch && rejected == seen || seen >= 100 && float64(rejected)/float64(seen) > o.maxRejected {
		return say
	}
	if o.verbosity > 0 {
		say = nil // the summary said it
	}
	return &cli.Status{Code: o.rejectedStatus, Err: say}
}

// firstRejected is the first of the merged records of the run's rejections, or "".
func firstRejected(ctx context.Context, output, run string) string {
	data, err := store.Read(ctx, store.Join(output, transforms.RejectedFile), 0)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(data) {
		var r transforms.Reject
		if json.Unmarshal(line, &r) == nil && r.Run == run {
			return fmt.Sprintf("%s: %s: %s", r.Input, r.Stage, r.Reason)
		}
	}
	return ""
}

func round(d time.Duration) time.Duration {
	if d < 100*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Second)
}
