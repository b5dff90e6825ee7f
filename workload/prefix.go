package workload

import (
	"net/netip"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// A Board answers about addresses, as [census.Board] does.
type Board interface {
	About(netip.Addr) census.Answer
	AboutRange(from, to netip.Addr) census.Answer
}

// About asks the board about all that a lease has: its address, or every one of its delegated
// prefix.
func About(b Board, l *ipam.Lease) census.Answer {
	if l.PrefixLen == 0 {
		return b.About(l.Addr)
	}
	r := l.Range()
	return b.AboutRange(r.From, r.To)
}

// SeenOf is what a census has of all that a lease has.
func SeenOf(c census.Census, l *ipam.Lease) []census.Sighting {
	if l.PrefixLen == 0 {
		return c.Seen[l.Addr]
	}
	r := l.Range()
	return c.In(r.From, r.To)
}
