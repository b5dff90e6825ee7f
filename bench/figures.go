package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A sample is how long each of some calls took.
type sample []time.Duration

// at returns a quantile, 0 <= q <= 1: the smallest duration that so much of
// the sample does not exceed. An empty sample is 0.
func (s sample) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s))[min(int(q*float64(len(s))), len(s)-1)]
}

func (s sample) p50() time.Duration { return s.at(0.50) }
func (s sample) p99() time.Duration { return s.at(0.99) }

// time appends how long op took.
func (s *sample) time(op func() error) error {
	began := time.Now()
	err := op()
	*s = append(*s, time.Since(began))
	return err
}

// A call is measured, and so is what undoes it, which may be nil.
type call struct{ do, undo func() error }

// A timing is how long calls took.
type timing struct{ do, undo sample }

// turn is how many calls of one kind are made before the next kind has its
// turn: whatever else the machine does hits all of them alike.
const turn = 10

// byTurns makes n calls of each kind.
func byTurns(n int, kinds ...call) []timing {
	took := make([]timing, len(kinds))
	for made := 0; made < n; made += turn {
		for i, c := range kinds {
			for range min(turn, n-made) {
				check(took[i].do.time(c.do))
				if c.undo != nil {
					check(took[i].undo.time(c.undo))
				}
			}
		}
	}
	return took
}

// during makes calls of each kind by turns for so long, at least one.
func during(long time.Duration, kinds ...call) (all []timing) {
	for began := time.Now(); all == nil || time.Since(began) < long; {
		all = join(all, byTurns(1, kinds...))
	}
	return all
}

// join appends timings of the same kinds.
func join(all, more []timing) []timing {
	if all == nil {
		return more
	}
	for i := range all {
		all[i].do, all[i].undo = append(all[i].do, more[i].do...), append(all[i].undo, more[i].undo...)
	}
	return all
}

// crowd has callers call for so long, each at least once, and returns how long each
// call took and how many there were a second.
func crowd(long time.Duration, callers ...func() error) (all sample, rate float64) {
	var wg sync.WaitGroup
	took, errs := make([]sample, len(callers)), make([]error, len(callers))
	began := time.Now()
	for i, op := range callers {
		wg.Go(func() {
			for errs[i] == nil && (len(took[i]) == 0 || time.Since(began) < long) {
				errs[i] = took[i].time(op)
			}
		})
	}
	wg.Wait()
	rate = 1 / time.Since(began).Seconds()
	check(errs...)
	all = slices.Concat(took...)
	return all, rate * float64(len(all))
}

// A ratio is what a round measured and its yardstick, both in unit.
type ratio struct {
	above, below float64
	unit         string
}

func (r ratio) value() float64 { return r.above / r.below }

func took(above, below time.Duration) ratio {
	return ratio{float64(above) / float64(time.Microsecond), float64(below) / float64(time.Microsecond), "µs"}
}

func rates(above, below float64) ratio { return ratio{above, below, "/s"} }

func sizes(above, below float64) ratio { return ratio{above / 1e6, below / 1e6, "MB"} }

// A row is a goal's promise and what the rounds measured.
type row struct {
	goal string
	wanted
	ratios []ratio
	broken error // what ended the goal; the row has nothing else then
}

// values are the rounds' ratios, or another figure of theirs.
func (r row) values(of func(ratio) float64) (out []float64) {
	for _, x := range r.ratios {
		out = append(out, of(x))
	}
	return out
}

// median of the rounds; 0 of none.
func median(of []float64) float64 {
	n := len(of)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// judged is what the limit is for: the median of the rounds, or the worst of them.
func (r row) judged() float64 {
	values := r.values(ratio.value)
	if r.worst && len(values) > 0 {
		return slices.Max(values)
	}
	return median(values)
}

// verdict is empty where nothing is promised. Nothing measured holds nothing.
func (r row) verdict() string {
	switch {
	case r.broken != nil:
		return "broken"
	case r.most == 0 && r.least == 0:
		return ""
	case len(r.ratios) > 0 && (r.most == 0 || r.judged() <= r.most) && (r.least == 0 || r.judged() >= r.least):
		return "held"
	}
	return "MISSED"
}

// cells are the row's columns, as the head of the table names them.
func (r row) cells() []string {
	if r.broken != nil {
		why := []rune(strings.Join(strings.Fields(r.broken.Error()), " "))
		return []string{r.goal, string(why[:min(len(why), 300)]), "", "", "", "", r.verdict(), ""}
	}
	limit := ""
	if r.most > 0 {
		limit = fmt.Sprintf("<= %g", r.most)
	} else if r.least > 0 {
		limit = fmt.Sprintf(">= %g", r.least)
	}
	out := []string{r.goal, r.what, limit, "", "", fmt.Sprint(len(r.ratios)), r.verdict(), ""}
	if values := r.values(ratio.value); len(values) > 0 {
		out[3], out[4] = short(r.judged()), short(slices.Min(values))+" - "+short(slices.Max(values))
		unit := r.ratios[0].unit
		out[7] = fmt.Sprintf("%s / %s %s", short(median(r.values(func(x ratio) float64 { return x.above }))),
			short(median(r.values(func(x ratio) float64 { return x.below }))), unit)
	}
	return out
}

// short has three digits where it has a point, and no exponent.
func short(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	case f == 0 || f >= 0.1 || f < 0:
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("%.4f", f)
}
