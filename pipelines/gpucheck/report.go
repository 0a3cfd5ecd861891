package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/linnet-ml/linnet/pipelines/internal/cli"
)

// title names a device in a line.
func (d *device) title() string {
	if d.Kind == "cpu" {
		return "CPU"
	}
	return fmt.Sprintf("GPU %d %s", d.Index, d.Name)
}

func writeJSON(w io.Writer, workers int, answers []answer, failure error) error {
	out := struct {
		Workers   int      `json:"workers"`
		Answered  int      `json:"answered"`
		Error     string   `json:"error,omitempty"`
		Processes []answer `json:"processes"`
	}{workers, len(answers), "", answers}
	if failure != nil {
		out.Error = failure.Error()
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func writeTable(w io.Writer, answers []answer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "host\tprocess\tdevice\tcompute\tdriver\tmemory\tfree\tfirst launch\ttenth\tresult")
	for _, a := range answers {
		for _, d := range a.Devices {
			capability, driver, memory, free, first, tenth := "–", "–", "–", "–", "–", "–"
			if d.Kind == "cuda" {
				capability, driver = d.Capability, fmt.Sprintf("%s (CUDA %s)", a.Driver, a.CUDA)
				if d.Memory > 0 {
					memory = humanize.IBytes(d.Memory)
				}
				if d.Free > 0 {
					free = humanize.IBytes(d.Free)
				}
			}
			if d.First > 0 {
				first, tenth = fmt.Sprintf("%.1f µs", d.First), fmt.Sprintf("%.1f µs", d.Tenth)
			}
			result := "right"
			if d.Error != "" {
				result = d.Error
			}
			name := d.title()
			if d.Kind == "cpu" {
				name += ", " + d.Name
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Host, a.PID, name, capability, driver, memory, free, first, tenth, cli.Printable(result))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range answers {
		if a.NoGPU != "" {
			fmt.Fprintf(w, "process %d on %s: no GPU: %s\n", a.PID, a.Host, cli.Printable(a.NoGPU))
		}
	}
	_, err := fmt.Fprintf(w, "%d %s answered\n", len(answers), english.PluralWord(len(answers), "process", ""))
	return err
}
