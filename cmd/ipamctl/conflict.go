package main

import (
	"fmt"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
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
// have an owner, so no quarantine shows them.
func (p *page) drawConflicts(s *api.Status) {
	if len(s.Conflicts) == 0 {
		return
	}
	all := conflicts(s)
	p.Heading(fmt.Sprintf("In conflict: %s", term.Plural(all, "address")))
	some := s.Conflicts[:min(len(s.Conflicts), drawnConflicts)]
	for _, f := range some {
		p.Text("  ", p.Bad(term.Word(f.Address))+": "+term.Sentence(f.Detail))
	}
	p.More(all-len(some), "ipamctl doctor")
	p.Text("", "next: "+term.Sentence(some[0].Repair))
}

// drawLastConflict writes the newest conflict, on an address that was
// quarantined for it or is held: when, what became of it, and who was seen.
func (p *page) drawLastConflict(s *api.Status) {
	l := s.LastConflict
	if l == nil {
		return
	}
	became := "over"
	if s.LastConflictStands {
		became = p.Bad("still quarantined")
		if l.To != api.Quarantined {
			became = p.Bad("it stands")
		}
	}
	p.Heading("Last conflict")
	p.Text("  ", fmt.Sprintf("%s %s, %s: ipamctl whois %s", term.Word(l.Address), p.ago(l.At), became, term.Word(l.Address)))
	some := l.Evidence[:min(len(l.Evidence), drawnLeases)]
	for _, seen := range some {
		p.Text("    ", term.Word(seen.Witness)+": "+p.seen(seen))
	}
	p.More(len(l.Evidence)-len(some), "ipamctl history "+term.Word(l.Address))
}
