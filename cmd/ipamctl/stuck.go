package main

import (
	"fmt"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// drawnLeases is how many leases of one kind a status draws: what is wrong is
// mostly wrong in one way, and the verbs that are named beside them have all.
const drawnLeases = 6

// drawStuck lists what ought to have moved on, each with what keeps it.
func (p *page) drawStuck(s *api.Status) {
	if s.StuckTotal == 0 {
		return
	}
	p.Heading(fmt.Sprintf("Stuck: %s", term.Plural(s.StuckTotal, "lease")))
	some := s.Stuck[:min(len(s.Stuck), drawnLeases)]
	cols := term.Columns("ADDRESS", "STATE", "FOR", "SANDBOX", "WHAT KEEPS IT")
	cols[3].Yield, cols[4].Wraps = true, true
	table(p, cols, some, func(one api.Stuck) []string {
		l := one.Lease
		return []string{term.Word(l.Address), p.state(l.State), term.Span(p.now().Sub(l.Since)), term.Maybe(l.Sandbox), p.keeper(one)}
	})
	p.More(s.StuckTotal-len(some), "ipamctl leases --state releasing, ipamctl leases --state reserved")
	p.Text("", "next: ipamctl show "+term.Word(some[0].Lease.ID))
}

// keeper is why a lease is stuck, in a line.
func (p *page) keeper(one api.Stuck) string {
	switch {
	case len(one.Blockers) == 1:
		return term.Sentence(one.Blockers[0].Detail)
	case len(one.Blockers) > 1:
		return fmt.Sprintf("%s, and %s more", term.Sentence(one.Blockers[0].Detail), term.Count(uint64(len(one.Blockers)-1)))
	case one.Lease.BindBy != nil:
		return "it is not bound; its deadline was " + p.ago(*one.Lease.BindBy)
	}
	return "-"
}

// drawQuarantined lists the newest quarantines.
func (p *page) drawQuarantined(s *api.Status) {
	if len(s.Quarantined) == 0 {
		return
	}
	total := 0
	for _, pool := range s.Pools {
		total += pool.ByState[string(api.Quarantined)]
	}
	total = max(total, len(s.Quarantined))
	p.Heading(fmt.Sprintf("Quarantined: %s", term.Plural(total, "address")))
	some := s.Quarantined[:min(len(s.Quarantined), drawnLeases)]
	p.drawQuarantine(some)
	p.More(total-len(some), "ipamctl quarantine ls")
}
