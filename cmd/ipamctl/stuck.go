package main

import (
	"fmt"

	"github.com/ipamd/ipamd/api"
)

// drawnLeases is how many leases of one kind a status draws: what is wrong is
// mostly wrong in one way, and the verbs that are named beside them have all.
const drawnLeases = 6

// drawStuck lists what ought to have moved on, each with what keeps it.
func (c *ctl) drawStuck(p *page, s *api.Status) {
	if s.StuckTotal == 0 {
		return
	}
	p.heading(fmt.Sprintf("Stuck: %s", plural(s.StuckTotal, "lease")))
	some := s.Stuck[:min(len(s.Stuck), drawnLeases)]
	rows := make([][]string, len(some))
	for i, one := range some {
		l := one.Lease
		rows[i] = []string{word(l.Address), p.state(l.State), span(c.now().Sub(l.Since)), maybe(l.Sandbox), c.keeper(one)}
	}
	cols := columns("ADDRESS", "STATE", "FOR", "SANDBOX", "WHAT KEEPS IT")
	cols[3].yield, cols[4].wraps = true, true
	p.table(cols, rows)
	p.more(s.StuckTotal-len(some), "ipamctl leases --state releasing, ipamctl leases --state reserved")
	p.text("", "next: ipamctl show "+word(some[0].Lease.ID))
}

// keeper is why a lease is stuck, in a line.
func (c *ctl) keeper(one api.Stuck) string {
	switch {
	case len(one.Blockers) == 1:
		return sentence(one.Blockers[0].Detail)
	case len(one.Blockers) > 1:
		return fmt.Sprintf("%s, and %s more", sentence(one.Blockers[0].Detail), count(uint64(len(one.Blockers)-1)))
	case one.Lease.BindBy != nil:
		return "nobody bound it; its deadline was " + c.ago(*one.Lease.BindBy)
	}
	return "-"
}

// drawAside lists the newest quarantines.
func (c *ctl) drawAside(p *page, s *api.Status) {
	if len(s.Quarantined) == 0 {
		return
	}
	total := 0
	for _, pool := range s.Pools {
		total += pool.ByState[string(api.Quarantined)]
	}
	total = max(total, len(s.Quarantined))
	p.heading(fmt.Sprintf("Quarantined: %s", plural(total, "address")))
	some := s.Quarantined[:min(len(s.Quarantined), drawnLeases)]
	c.drawQuarantine(p, some)
	p.more(total-len(some), "ipamctl quarantine ls")
}

// more says how many of a list were not drawn, and which verb draws them.
func (p *page) more(n int, verb string) {
	if n > 0 {
		p.text("", p.dim(fmt.Sprintf("and %s more: %s", count(uint64(n)), verb)))
	}
}
