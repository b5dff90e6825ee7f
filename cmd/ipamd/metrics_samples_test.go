package main

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/ipam"
)

// samples is what a daemon exposes at one moment, by name and labels in their
// order: `conflicts_total{witness="netns"}`. A histogram has its count and sum.
type samples map[string]float64

// scrapeOf reads a running daemon's own metrics.
func (w *world) scrapeOf() samples {
	w.t.Helper()
	families, err := w.program.metrics.Registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	out := make(samples)
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "ipamd_")
		if !ours {
			continue
		}
		for _, m := range f.GetMetric() {
			var pairs []string
			for _, l := range m.GetLabel() {
				pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			labels := ""
			if len(pairs) > 0 {
				labels = "{" + strings.Join(pairs, ",") + "}"
			}
			switch {
			case m.Counter != nil:
				out[name+labels] = m.GetCounter().GetValue()
			case m.Gauge != nil:
				out[name+labels] = m.GetGauge().GetValue()
			case m.Histogram != nil:
				out[name+"_count"+labels] = float64(m.GetHistogram().GetSampleCount())
				out[name+"_sum"+labels] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return out
}

// sum adds up every sample of a name whose labels have all the parts.
func (s samples) sum(name string, parts ...string) (total float64) {
	for key, v := range s {
		if of, labels, _ := strings.Cut(key, "{"); of == name &&
			!slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(labels, part) }) {
			total += v
		}
	}
	return total
}

// note remembers which metrics have been other than 0.
func (s samples) note(moved map[string]bool) {
	for key, v := range s {
		if name, _, _ := strings.Cut(key, "{"); v != 0 {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
			moved["ipamd_"+name] = true
		}
	}
}

// A tally is a count by labels.
type tally map[string]float64

func (t tally) add(name string, labels ...string) {
	t[name+"{"+strings.Join(labels, ",")+"}"]++
}

// bookRow is a row of the book's history, as its file has it.
type bookRow struct {
	rev              int64
	from, to         ipam.State
	actor            ipam.Actor
	reason, evidence string
}

// ofFile reads the book's file past the daemon: how many addresses are in each
// state, and every change.
func (w *world) ofFile() (states map[ipam.State]float64, changes []bookRow) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.cfg.Book.Path+"?mode=ro")
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	states = make(map[ipam.State]float64)
	rows, err := db.Query(`SELECT state, count(*) FROM leases GROUP BY state`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var state ipam.State
		var n float64
		if err := rows.Scan(&state, &n); err != nil {
			w.t.Fatal(err)
		}
		states[state] = n
	}
	past, err := db.Query(`SELECT rev, from_state, to_state, actor, reason, evidence FROM changes WHERE subject = 'lease' ORDER BY rev`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer past.Close()
	for past.Next() {
		var r bookRow
		if err := past.Scan(&r.rev, &r.from, &r.to, &r.actor, &r.reason, &r.evidence); err != nil {
			w.t.Fatal(err)
		}
		changes = append(changes, r)
	}
	return states, changes
}

// agree compares samples with a recount: each counted value must be exposed,
// and of the named metrics nothing else that is not 0.
func agree(got samples, want tally, names ...string) (wrong []string) {
	for key, n := range want {
		if got[key] != n {
			wrong = append(wrong, fmt.Sprintf("%s is %v, and a recount says %v", key, got[key], n))
		}
	}
	for key, n := range got {
		name, _, _ := strings.Cut(key, "{")
		if _, counted := want[key]; n != 0 && !counted && slices.Contains(names, name) {
			wrong = append(wrong, fmt.Sprintf("%s is %v, and a recount has none", key, n))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// A disagreement is found in either direction.
func TestRecountsAreCompared(t *testing.T) {
	got := samples{`a_total{x="1"}`: 2, `a_total{x="2"}`: 0, `b`: 1}
	for name, c := range map[string]struct {
		want  tally
		wrong int
	}{
		"the same":         {tally{`a_total{x="1"}`: 2}, 0},
		"too many":         {tally{`a_total{x="1"}`: 1}, 1},
		"not exposed":      {tally{`a_total{x="1"}`: 2, `a_total{x="3"}`: 1}, 1},
		"exposed too much": {tally{}, 1},
	} {
		if wrong := agree(got, c.want, "a_total"); len(wrong) != c.wrong {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}
