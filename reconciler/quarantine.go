package reconciler

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// operator stands where a witness's name does in the evidence of a quarantine
// made by hand.
const operator = census.Witness(netdb.ByOperator)

// leastCensuses is how many complete censuses must agree that a quarantined
// address is dark, however long it has been.
const leastCensuses = 3

// darkness is what was observed of one quarantined lease since it was last
// seen. It is kept in memory only: a restart starts again.
type darkness struct {
	since    netdb.Stamp
	censuses int
}

// A clear lets one quarantined address cool.
type clear struct {
	lease *netdb.Lease
}

// quarantined decides which quarantined addresses have been dark long enough.
// before is what earlier passes observed; what this one knows comes back. A
// census that a witness is missing from proves nothing and counts for
// nothing, as it does for an address that the wire should have been asked
// about and was not; one sighting starts all over. What an operator set aside
// stays so until an operator clears it.
func quarantined(book []*netdb.Lease, c census.Census, unasked map[netip.Addr]bool, before map[string]darkness, least time.Duration, now netdb.Stamp) ([]clear, map[string]darkness) {
	var actions []clear
	after := make(map[string]darkness)
	for _, l := range book {
		if l.State != netdb.Quarantined || len(c.Seen[l.Addr]) > 0 || namedBy(l, operator) {
			continue
		}
		d, known := before[l.ID]
		if !c.Complete() || unasked[l.Addr] {
			if known {
				after[l.ID] = d
			}
			continue
		}
		if !known {
			d.since = now
		}
		d.censuses = min(d.censuses+1, leastCensuses)
		after[l.ID] = d
		if d.censuses >= leastCensuses && now.Since(d.since) >= least {
			actions = append(actions, clear{l})
		}
	}
	return actions, after
}

// probesMost bounds the questions of one pass: a broadcast costs its sender
// about 1 µs a port.
const probesMost = 256

// toProbe splits the quarantined leases that a probe has told about, by their
// evidence or by what is seen now, into those that this pass asks about and
// those that have to wait for another. Their turn goes around in the order of
// the book, from the one behind last.
func toProbe(book []*netdb.Lease, about func(netip.Addr) census.Answer, last netip.Addr) (ask, wait []netip.Addr) {
	var before []netip.Addr
	for _, l := range book {
		switch {
		case l.State != netdb.Quarantined || namedBy(l, operator):
		case !namedBy(l, census.Probe) && !probed(about(l.Addr).Seen):
		case last.Less(l.Addr):
			ask = append(ask, l.Addr)
		default:
			before = append(before, l.Addr)
		}
	}
	ask = append(ask, before...)
	n := min(len(ask), probesMost)
	return ask[:n], ask[n:]
}

// namedBy reports whether the evidence of a quarantine names a witness.
// Evidence that cannot be read may name any, so only an operator ends it.
func namedBy(l *netdb.Lease, w census.Witness) bool {
	if len(l.Evidence) == 0 {
		return false
	}
	var seen []struct {
		Witness census.Witness `json:"witness"`
	}
	if err := json.Unmarshal(l.Evidence, &seen); err != nil {
		return true
	}
	for _, s := range seen {
		if s.Witness == w {
			return true
		}
	}
	return false
}

func probed(seen []census.Sighting) bool {
	for _, s := range seen {
		if s.Witness == census.Probe {
			return true
		}
	}
	return false
}
