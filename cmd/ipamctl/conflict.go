package main

import (
	"fmt"

	"github.com/ipamd/ipamd/api"
)

// drawnConflicts is how many addresses in dispute a status draws.
const drawnConflicts = 8

// conflicts counts the addresses that two use or claim at this moment.
func conflicts(s *api.Status) int {
	n := 0
	for kind, of := range s.Findings {
		if (api.Finding{Kind: kind}).Conflict() {
			n += of
		}
	}
	return max(n, len(s.Conflicts))
}

// drawConflicts names the addresses in conflict, each with who is on it. They
// have an owner, so no quarantine tells of them.
func (c *ctl) drawConflicts(p *page, s *api.Status) {
	if len(s.Conflicts) == 0 {
		return
	}
	all := conflicts(s)
	p.heading(fmt.Sprintf("In conflict: %s", plural(all, "address")))
	some := s.Conflicts[:min(len(s.Conflicts), drawnConflicts)]
	for _, f := range some {
		p.text("  ", p.bad(word(f.Address))+": "+sentence(f.Detail))
	}
	p.more(all-len(some), "ipamctl doctor")
	p.text("", "next: "+sentence(some[0].Mend))
}

// drawLastConflict tells of the newest conflict, on an address that was
// quarantined for it or is held: when, what became of it, and who was seen.
func (c *ctl) drawLastConflict(p *page, s *api.Status) {
	l := s.LastConflict
	if l == nil {
		return
	}
	became := "over"
	if s.LastConflictStands {
		became = p.bad("still quarantined")
		if l.To != api.Quarantined {
			became = p.bad("it stands")
		}
	}
	p.heading("Last conflict")
	p.text("  ", fmt.Sprintf("%s %s, %s: ipamctl whois %s", word(l.Address), c.ago(l.At), became, word(l.Address)))
	some := l.Evidence[:min(len(l.Evidence), drawnLeases)]
	for _, seen := range some {
		p.text("    ", word(seen.Witness)+": "+c.seen(seen))
	}
	p.more(len(l.Evidence)-len(some), "ipamctl history "+word(l.Address))
}
