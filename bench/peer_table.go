package main

import (
	"fmt"
	"slices"
	"time"
)

// rows are what is promised beside the peers.
func (m *match) rows() (rows []row) {
	for _, p := range m.theirs {
		for fill, least := range p.slower {
			if least == 0 {
				continue
			}
			r := row{goal: peersGoal, what: fmt.Sprintf("%s, %s / ipamd, p50", p.name, m.fills[fill].name), least: least}
			if p.remote {
				r.what = fmt.Sprintf("(%s, %s + R) / ipamd, p50", p.name, m.fills[fill].name)
			}
			for round, took := range p.half[fill] {
				if p.remote {
					took += m.echoes[round]
				}
				r.add(took, m.ours.half[fill][round])
			}
			rows = append(rows, r)
		}
		if p.fewer > 0 {
			r := row{goal: peersGoal, what: fmt.Sprintf("allocations/s of ipamd / %s, %d callers", p.name, m.callers), least: p.fewer}
			scale := row{goal: peersGoal, what: fmt.Sprintf("the same, each with its release, calls/s of ipamd / %s", p.name)}
			for round := range m.echoes {
				r.addRates(m.ours.rates[growing][round], p.rates[growing][round])
				scale.addRates(m.ours.rates[churning][round], p.rates[churning][round])
			}
			rows = append(rows, r, scale)
		}
	}
	return rows
}

// table has a line for ipamd and each peer: the median of the rounds' p50 of
// an allocation, and their spread.
func (m *match) table() table {
	head := []string{"p50 of an allocation, ms", "version", "a loss of power leaves"}
	for _, f := range m.fills {
		head = append(head, f.name)
	}
	grown := fmt.Sprintf("%d callers, from 0 on, allocations/s", m.callers)
	t := table{append(head, grown, "the same, with releases, calls/s")}
	for _, p := range append([]*player{m.ours}, m.theirs...) {
		version := p.version
		if version == "" {
			version = "-"
		}
		line := []string{p.title, version, p.durable}
		for fill := range m.fills {
			cell := p.unfilled[fill]
			if cell == "" {
				cell = spreadOf(milliseconds(p.half[fill]))
			}
			line = append(line, cell)
		}
		for _, way := range []string{growing, churning} {
			cell := spreadOf(p.rates[way])
			if way == growing {
				cell += fmt.Sprintf(", to %d", p.grown)
			}
			if n := p.failed[way]; n > 0 {
				cell += fmt.Sprintf(", %d failed", n)
			}
			line = append(line, cell)
		}
		t = append(t, line)
	}
	return t
}

func milliseconds(s sample) (out []float64) {
	for _, d := range s {
		out = append(out, float64(d)/float64(time.Millisecond))
	}
	return out
}

// spreadOf is the median, the least and the largest of some figures.
func spreadOf(of []float64) string {
	return fmt.Sprintf("%s (%s-%s)", short(median(of)), short(slices.Min(of)), short(slices.Max(of)))
}

// short has three digits at the most where it has a point, and no exponent.
func short(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	case f >= 0.1:
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("%.4f", f)
}
