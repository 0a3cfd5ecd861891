package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms"
)

// regularly calls f until ctx ends, at least least apart and so that it takes no more than a
// twentieth of the time.
func regularly(ctx context.Context, least time.Duration, f func()) {
	for pause := least; ; {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		begin := time.Now()
		f()
		pause = max(least, 20*time.Since(begin))
	}
}

// show moves the bar while the run goes on; the function it returns ends that.
func (o *options) show(bar *cli.Bar, p *transforms.Progress, m *transforms.Model, begin time.Time) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	speed := pace{older: mark{at: begin}, newer: mark{at: begin}}
	go regularly(ctx, 200*time.Millisecond, func() {
		bar.Set(o.sofar(p, &speed, m.Now(), bar.Total(), begin))
	})
	return cancel
}

// sofar is how many of total documents are seen, and the text beside the bar. What may be
// cut where the terminal is narrow stands last.
func (o *options) sofar(p *transforms.Progress, speed *pace, device string, total int64, begin time.Time) (seen int64, text string) {
	seen = p.Seen() + p.PassedOver.Load()
	text = fmt.Sprintf("%s of %s, %s lines/s", cli.Count(seen), cli.Plural(total, "document"), cli.Rate(p.Lines.Load(), time.Since(begin)))
	if o.watch {
		text = fmt.Sprintf("%s, %s; watching", cli.Plural(p.Labelled.Load(), "document"), cli.Plural(p.Lines.Load(), "line"))
	}
	if n := p.Rejected.Load(); n > 0 {
		text += ", " + cli.Count(n) + " rejected"
	}
	if seen > 0 && !o.watch {
		text += ", " + speed.left(time.Now(), seen, total).Round(time.Second).String() + " left"
	}
	if !o.watch {
		device, _, _ = strings.Cut(device, ",")
		text += ", on " + device
	}
	return seen, text
}

// pace tells how long the rest takes at the speed of the last 5 to 10 s: what is
// done already goes by many times as fast as what is labelled.
type pace struct{ older, newer mark }

type mark struct {
	at   time.Time
	seen int64
}

// left is the time for the rest of total documents. seen, those that are through,
// is above 0 and never falls.
func (p *pace) left(now time.Time, seen, total int64) time.Duration {
	if now.Sub(p.newer.at) >= 5*time.Second && seen > p.newer.seen {
		p.older, p.newer = p.newer, mark{now, seen}
	}
	return time.Duration(float64(now.Sub(p.older.at)) / float64(seen-p.older.seen) * float64(max(0, total-seen)))
}

// follow moves the bar by the records of a job elsewhere, whose counters come
// only when a stage ends: those made after the newest that was there before.
// The function it returns ends that.
func (o *options) follow(bar *cli.Bar, output string, begin time.Time) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, newest, err := transforms.CountDone(ctx, output, time.Time{})
		if err != nil {
			return
		}
		regularly(ctx, 2*time.Second, func() {
			n, _, err := transforms.CountDone(ctx, output, newest)
			if err != nil || ctx.Err() != nil {
				cancel()
				return
			}
			text := fmt.Sprintf("%s of %s labelled", cli.Count(n), cli.Plural(bar.Total(), "document"))
			if o.watch {
				text = fmt.Sprintf("%s; watching", cli.Plural(n, "document"))
			} else if n > 0 {
				left := time.Duration(float64(time.Since(begin)) / float64(n) * float64(max(0, bar.Total()-n)))
				text += ", " + left.Round(time.Second).String() + " left at most"
			}
			bar.Set(n, text)
		})
	}()
	return cancel
}

// gather gathers the records of a watch now and then, where there are new ones, the more
// seldom the more there are. The function it returns ends that.
func (o *options) gather(opts transforms.Options) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() {
		gathered := uint64(0)
		regularly(ctx, 10*time.Second, func() {
			settled := transforms.Settle(ctx, opts, nil)
			now, err := transforms.Regather(ctx, string(opts.Output), gathered)
			gathered = now
			if err := cmp.Or(settled, err); err != nil && ctx.Err() == nil && o.verbosity > 0 {
				fmt.Fprintf(os.Stderr, "linnet: %v; trying again\n", err)
			}
		})
	})
	return func() { cancel(); over.Wait() }
}
