package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// whoisHistory is how many changes a whois shows.
const whoisHistory = 20

// whois answers all that is known about one address. An address that cools has
// no owner: a predecessor named the former one, and seven hours of traffic
// were put down to the wrong sandbox.
func (h *addresses) whois(c *call) (int, any, error) {
	addr, err := c.addr()
	if err != nil {
		return 0, nil, err
	}
	leave, err := c.heavy(c.ctx)
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	past, err := h.book.History(c.ctx, ipam.Query{Addr: addr, Limit: whoisHistory})
	if err != nil {
		return 0, nil, err
	}
	place, row := h.book.Place(addr), (*ipam.Lease)(nil)
	if l, ok := h.book.At(addr); ok && (l.State.Open() || l.State == ipam.Releasing) {
		row = l
	}
	reply := &api.WhoisReply{
		Address: addr.String(), State: api.Free, Usable: place.Usable, Note: place.Note, KeptFor: place.Kept,
		Witnesses: witnessAnswers(row, h.witnesses.About(addr)), History: changes(past),
		Revision: h.book.Rev(), Epoch: h.book.Epoch(),
	}
	if place.Pool != nil {
		reply.Pool = place.Pool.Name
	}
	if place.Withheld != nil {
		reply.Withheld = withheldOf(place.Withheld)
	}
	if l, ok := h.book.At(addr); ok {
		reply.State = api.State(l.State)
		// A releasing lease is still its owner's: nothing says yet that the
		// workload is gone.
		if l.State.Open() || l.State == ipam.Releasing {
			reply.Owner = l.Sandbox
		}
		if l.State != ipam.Cooling {
			shown := h.shown(l)
			reply.Lease = &shown
		}
	}
	return http.StatusOK, reply, nil
}

// witnessAnswers is one answer a witness: one that has seen something says so also
// when it could not answer completely. holder is the lease that holds the address,
// by which each sighting is judged; nil: none does.
func witnessAnswers(holder *ipam.Lease, a census.Answer) []api.WitnessAnswer {
	byWitness := make(map[census.Witness]*api.WitnessAnswer)
	of := func(w census.Witness) *api.WitnessAnswer {
		if byWitness[w] == nil {
			byWitness[w] = &api.WitnessAnswer{Witness: string(w), Answer: "not seen"}
		}
		return byWitness[w]
	}
	for _, w := range a.Answered {
		of(w)
	}
	for _, s := range a.Silent {
		of(s.Witness).Answer, of(s.Witness).Reason = "silent", s.Reason
	}
	seen := sightings(a.Seen)
	if holder != nil {
		seen = judged(holder, a.Seen)
	}
	for _, s := range seen {
		w := of(census.Witness(s.Witness))
		w.Answer, w.Seen = "seen", append(w.Seen, s)
	}
	out := make([]api.WitnessAnswer, 0, len(byWitness))
	for _, w := range byWitness {
		out = append(out, *w)
	}
	order := []string{string(census.Runtime), string(census.Netns), string(census.Host),
		string(census.Neighbour), string(census.Probe)}
	slices.SortFunc(out, func(a, b api.WitnessAnswer) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Witness), slices.Index(order, b.Witness)),
			cmp.Compare(a.Witness, b.Witness))
	})
	return out
}

// quarantine holds an address in the operator's words, with what the witnesses
// see there.
func (h *addresses) quarantine(c *call) (int, any, error) {
	var ask api.QuarantineRequest
	return h.onAddress(c, &ask, func(addr netip.Addr) (*ipam.Lease, error) {
		return h.book.Hold(c.ctx, c.operator("set_aside", ask.Reason), addr, marshal(h.witnesses.About(addr).Seen))
	})
}

// marshal is sightings as the book keeps them; nil for none.
func marshal(seen []census.Sighting) json.RawMessage {
	if len(seen) == 0 {
		return nil
	}
	b, err := json.Marshal(seen)
	if err != nil {
		panic(err) // sightings always marshal
	}
	return b
}

// clear lets a quarantined address cool, at the revision that was read, unless
// a witness sees it: the next pass would quarantine it again, and "done" would be
// wrong until then. Nor while any witness is silent, the runtime included: a
// containerd that cannot be read may have the container that owns the address.
func (h *addresses) clear(c *call) (int, any, error) {
	return h.onAddress(c, &struct{}{}, func(addr netip.Addr) (*ipam.Lease, error) {
		l, err := h.quarantined("clear", addr)
		if err != nil {
			return nil, err
		}
		return h.book.ClearAt(c.ctx, c.who(ipam.ByOperator, "cleared"), l.ID, l.Rev, func() error { return h.unseen(l) })
	})
}

// quarantined is the row of a quarantined address.
func (h *addresses) quarantined(verb string, addr netip.Addr) (*ipam.Lease, error) {
	l, ok := h.book.At(addr)
	if !ok || l.State != ipam.Quarantined {
		return nil, fmt.Errorf("%s %s: %w: it is not quarantined", verb, addr, ipam.ErrState)
	}
	return l, nil
}

// unseen returns nil when every witness answers and none sees the row's address, or any of its prefix. It
// reads memory: the book calls it inside a transaction.
func (h *addresses) unseen(l *ipam.Lease) error {
	switch a := workload.About(h.witnesses, l); {
	case len(a.Seen) > 0:
		return &seenError{"clear", ipam.ErrState, a.Seen}
	case len(a.Silent) > 0:
		return &allocator.EvidenceError{Silent: a.Silent}
	}
	return nil
}
