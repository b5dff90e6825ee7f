package watchdog

import (
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// A roll is which containers there are, found by what ties one to a lease. It
// is made of the runtime's list, or of the board.
type roll struct {
	there     map[Container]Workload
	bySandbox map[string][]Workload
	byLease   map[string][]Workload
}

func newRoll(all []Workload) roll {
	r := roll{make(map[Container]Workload, len(all)), make(map[string][]Workload), make(map[string][]Workload)}
	for _, w := range all {
		if _, twice := r.there[w.Container]; twice {
			continue // one with several addresses is on the board once for each
		}
		r.there[w.Container] = w
		if w.Sandbox != "" {
			r.bySandbox[w.Sandbox] = append(r.bySandbox[w.Sandbox], w)
		}
		if w.LeaseID != "" {
			r.byLease[w.LeaseID] = append(r.byLease[w.LeaseID], w)
		}
	}
	return r
}

// onBoard returns the containers that the runtime witness sees.
func onBoard(c census.Census) []Workload {
	var out []Workload
	for _, seen := range c.Seen {
		for _, s := range seen {
			if s.Witness == census.Runtime && s.Container != "" {
				out = append(out, Workload{Container: Container{s.Namespace, s.Container}, Sandbox: s.Sandbox, LeaseID: s.LeaseID})
			}
		}
	}
	return out
}

// of returns the containers that belong to a lease: it records them, or their
// lease label is its id, or their owner label its sandbox or incarnation;
// without those that are its successors'.
func (r roll) of(l *netdb.Lease, h heirs) []Workload {
	var out []Workload
	add := func(w Workload) {
		if !slices.ContainsFunc(out, func(o Workload) bool { return o.Container == w.Container }) {
			out = append(out, w)
		}
	}
	for _, c := range l.Containers {
		if w, ok := r.there[Container(c)]; ok {
			add(w)
		}
	}
	for _, w := range r.byLease[l.ID] {
		add(w)
	}
	for _, name := range []string{l.Sandbox, l.UID} {
		for _, w := range r.bySandbox[name] {
			if !h.claims(w) {
				add(w)
			}
		}
	}
	return out
}

// without leaves out the containers that are there and are a successor's.
func (r roll) without(h heirs, met []Container) []Container {
	return slices.DeleteFunc(slices.Clone(met), func(c Container) bool {
		w, there := r.there[c]
		return there && h.claims(w)
	})
}
