package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A row is one measured promise: a ratio a round, and its limit, which is
// most or least; the other is 0. A row without either promises nothing: it is
// there for scale.
type row struct {
	goal        int
	what        string
	most, least float64
	ratios      []float64
	above       []float64 // what was measured, in unit
	below       []float64 // and its yardstick
	unit        string
	broken      bool // its goal broke before all rounds were taken
}

// add notes one round in which something took so long, and its yardstick.
func (r *row) add(took, yardstick time.Duration) {
	r.unit = "µs"
	r.round(float64(took)/float64(time.Microsecond), float64(yardstick)/float64(time.Microsecond))
}

// addRates notes one round of calls a second.
func (r *row) addRates(rate, yardstick float64) {
	r.unit = "/s"
	r.round(rate, yardstick)
}

func (r *row) round(above, below float64) {
	r.above, r.below = append(r.above, above), append(r.below, below)
	r.ratios = append(r.ratios, above/below)
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

// met reports whether the median keeps the limit. Nothing measured meets
// nothing.
func (r *row) met() bool {
	m := median(r.ratios)
	switch {
	case len(r.ratios) == 0:
		return false
	case r.least > 0:
		return m >= r.least
	}
	return m <= r.most
}

func (r *row) limit() string {
	switch {
	case r.least > 0:
		return fmt.Sprintf(">= %.2f", r.least)
	case r.most == 0:
		return "-"
	}
	return fmt.Sprintf("<= %.2f", r.most)
}

func (r *row) verdict() string {
	switch {
	case r.broken && (len(r.ratios) == 0 || r.limit() != "-"):
		return "broken"
	case r.most == 0 && r.least == 0:
		return "-"
	case r.met():
		return "met"
	}
	return "MISSED"
}

// spread is the least and the largest round.
func (r *row) spread() string {
	if len(r.ratios) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f-%.2f", slices.Min(r.ratios), slices.Max(r.ratios))
}

func (r *row) ratio() string {
	if len(r.ratios) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(r.ratios))
}

func (r *row) figures() string {
	if len(r.ratios) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %s / %.0f %s", median(r.above), r.unit, median(r.below), r.unit)
}

// A table is its head and its lines.
type table [][]string

// goalTable has a line a row.
func goalTable(rows []row) table {
	t := table{{"goal", "what", "limit", "ratio", "spread", "rounds", "", "medians"}}
	for _, r := range rows {
		t = append(t, []string{goalName(r.goal), r.what, r.limit(), r.ratio(), r.spread(),
			strconv.Itoa(len(r.ratios)), r.verdict(), r.figures()})
	}
	return t
}

// write prints the table in columns.
func (t table) write(w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range t {
		fmt.Fprintln(columns, strings.Join(line, "\t"))
	}
	return columns.Flush()
}
