package main

import (
	"fmt"

	"github.com/ipamd/ipamd/api"
)

// drawnConflicts is how many addresses in dispute a status draws.
const drawnConflicts = 8

// disputed picks the findings that are conflicts: an address that two use or
// claim at this moment. It has an owner, so no quarantine tells of it.
func disputed(r *api.Report) []api.Finding {
	var out []api.Finding
	if r == nil {
		return nil
	}
	for _, f := range r.Reports {
		if f.Kind == "conflict" || f.Kind == "two_claimants" {
			out = append(out, f)
		}
	}
	return out
}

// drawDisputed names the addresses in dispute, each with who is on it.
func (c *ctl) drawDisputed(p *page, last *api.Report) {
	all := disputed(last)
	if len(all) == 0 {
		return
	}
	p.heading(fmt.Sprintf("In conflict: %s", plural(len(all), "address")))
	some := all[:min(len(all), drawnConflicts)]
	for _, f := range some {
		p.text("  ", p.bad(word(f.Address))+": "+sentence(f.Detail))
	}
	p.more(len(all)-len(some), "ipamctl doctor")
	p.text("", "next: "+sentence(some[0].Mend))
}

// drawLastConflict tells of the newest quarantine that a conflict made: when,
// what became of it, and who was seen.
func (c *ctl) drawLastConflict(p *page, s *api.Status) {
	l := s.LastConflict
	if l == nil {
		return
	}
	became := "over"
	if s.LastConflictStands {
		became = p.bad("still quarantined")
	}
	p.heading("Last conflict")
	p.text("  ", fmt.Sprintf("%s %s, %s: ipamctl whois %s", word(l.Address), c.ago(l.At), became, word(l.Address)))
	some := l.Evidence[:min(len(l.Evidence), drawnLeases)]
	for _, seen := range some {
		p.text("    ", word(seen.Witness)+": "+c.seen(seen))
	}
	p.more(len(l.Evidence)-len(some), "ipamctl history "+word(l.Address))
}
