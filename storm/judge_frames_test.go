package storm_test

import (
	"fmt"
	"slices"
	"strings"
)

// judgeFrames looks for frames that the kernel's rules should have dropped, or passed. What
// is sent while another program has taken rules away may pass.
func judgeFrames(h *history) (faults []string) {
	judged := map[*sent]bool{}
	for _, s := range h.sent {
		if judged[s] {
			continue // sent more than once
		}
		judged[s] = true
		switch {
		case s.own && s.arrived == never:
			faults = append(faults, fmt.Sprintf("dropped: %s from %s, first sent at %v, was never received", s.what, s.port, s.at))
		case !s.own && s.arrived != never && !h.gap(s.port, s.at, s.arrived):
			faults = append(faults, fmt.Sprintf("passed: %s from %s, sent at %v, was received at %v", s.what, s.port, s.at, s.arrived))
		}
	}
	slices.Sort(faults)
	return faults
}

// gap reports that rules of a port may have been missing between two moments.
func (h *history) gap(port string, from, to moment) bool {
	return slices.ContainsFunc(h.gaps, func(g *gap) bool { return (g.port == "" || g.port == port) && g.from <= to && from <= g.to })
}

// judgeReadings holds the kernel's rules against the book: who was bound before a reading
// and lived on behind it has its own, and nothing else; who was cooling has none.
func judgeReadings(h *history) (faults []string) {
	found := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	ends := make(map[string]moment)
	for _, o := range h.holds {
		ends[o.lease] = max(ends[o.lease], o.to)
	}
	for _, r := range h.readings {
		if r.has == nil && !h.gap("", r.from, r.to) {
			found("no rules: at %v the kernel has no table", r.from)
		}
		if r.has == nil {
			continue
		}
		for _, l := range h.lives {
			if !l.bound || l.since > r.from || min(l.to, ends[l.lease]) < r.to {
				continue
			}
			port, want := due(l)
			if got := r.has.of(port); !slices.Equal(got, want) && !h.gap(port, r.from, r.to) {
				found("other rules: at %v %s has %q for lease %s, and should have %q", r.from, port, got, l.lease, want)
			}
		}
		for lease, addr := range r.cooling {
			for _, e := range r.has["ipv4"] {
				if strings.HasSuffix(e, " "+addr) {
					found("a rule too long: at %v the kernel has ipv4 { %s }, and %s is cooling by lease %s", r.from, e, addr, lease)
				}
			}
		}
	}
	for _, c := range h.cooled {
		if c.rule {
			found("a rule too long: at %v the kernel has an ipv4 of %s, which is cooling by lease %s", c.at, c.addr, c.lease)
		}
	}
	return faults
}
