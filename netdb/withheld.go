package netdb

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// withheld lists the withheld addresses as the batch leaves them.
func (t *tx) withheld() []ipam.Withheld {
	all := t.idx.withheld
	if len(t.staged.withheld) > 0 {
		all = maps.Clone(all)
		for a, w := range t.staged.withheld {
			if w == nil {
				delete(all, a)
			} else {
				all[a] = *w
			}
		}
	}
	return slices.Collect(maps.Values(all))
}

// withheldAt returns what is withheld of an address, alone or in a delegated prefix, as the batch
// leaves it.
func (t *tx) withheldAt(a netip.Addr) *ipam.Withheld {
	if len(t.staged.withheld) == 0 {
		return t.idx.withheldAt(a)
	}
	return withheldAround(a, func(at netip.Addr) (*ipam.Withheld, bool) {
		if w, staged := t.staged.withheld[at]; staged {
			return w, w != nil
		}
		w, ok := t.idx.withheld[at]
		return &w, ok
	})
}

// Withheld lists the addresses of removed pools that no pool has taken over, in their
// order.
func (m *memory) Withheld() []ipam.Withheld {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.SortedFunc(maps.Values(m.idx.withheld), func(x, y ipam.Withheld) int { return x.Addr.Compare(y.Addr) })
}

// withheldAt returns what is withheld of an address, alone or in a delegated prefix.
func (x *index) withheldAt(a netip.Addr) *ipam.Withheld {
	if len(x.withheld) == 0 {
		return nil
	}
	return withheldAround(a, func(at netip.Addr) (*ipam.Withheld, bool) {
		w, ok := x.withheld[at]
		return &w, ok
	})
}

// withheldAround looks for an address, and for each delegated prefix that can have it: there may be
// as many withheld as an import had rows.
func withheldAround(a netip.Addr, withheld func(netip.Addr) (*ipam.Withheld, bool)) *ipam.Withheld {
	for bits := a.BitLen(); bits > 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			return nil
		}
		if w, ok := withheld(p.Addr()); ok && w.Covers(a) {
			return w
		}
	}
	return nil
}

// purge takes a row away, by the moves that any row makes on its way, and withholds its
// address. The last of them is the sweep's: it is what ends a rest.
func (t *tx) purge(who ipam.Who, e ipam.LeaseEffect) (err error) {
	l := e.Lease
	w := &ipam.Withheld{Addr: l.Addr, PrefixLen: l.PrefixLen, PoolUID: l.PoolUID, Pool: l.Pool, LeaseID: l.ID, State: ipam.Quarantined, Sandbox: l.Sandbox,
		UID: l.UID, Interface: l.Interface, Since: l.Since, Evidence: l.Evidence, Hold: l.Hold,
		HostInterface: l.HostInterface, Netns: l.Netns, Plug: l.Plug}
	if p := t.pool(l.PoolUID); p != nil {
		w.Bridge = p.Bridge
	}
	who.Actor, who.Reason = ipam.ByOperator, ipam.PoolRemoved
	if l.State.Open() {
		if l, err = t.setState(who, l, ipam.Releasing, nil); err != nil {
			return err
		}
	} else if l.State == ipam.Releasing {
		w.Plug.Unseen = false // its owner said that it ended
	}
	if l.State == ipam.Releasing {
		was := e.Lease
		if was.State == ipam.Paused {
			w.Hold = "nothing would show its sandbox, which was paused"
		}
		w.Since = t.now
		w.Evidence = testify(w, "pool %s (%s) was removed by force while this was %s", l.Pool, l.PoolUID, was.State)
		if l, err = t.setState(who, l, ipam.Quarantined, w.Evidence); err != nil {
			return err
		}
	}
	if l.State == ipam.Cooling {
		w.State, w.Rev = ipam.Cooling, l.CooledAt()
	} else if l, err = t.setState(who, l, ipam.Cooling, nil); err != nil {
		return err
	}
	who.Actor = ipam.ByReconciler
	gone := *l
	gone.State = ipam.Free
	w.Rev = cmp.Or(w.Rev, t.staged.rev+1)
	_, err = t.recordWith(who, l, gone, nil, w)
	return err
}

// A testimony is the book's own evidence about an address.
type testimony struct {
	Witness string     `json:"witness"`
	Address netip.Addr `json:"address"`
	At      time.Time  `json:"at"`
	Sandbox string     `json:"sandbox"`
	UID     string     `json:"uid"`
	LeaseID string     `json:"lease_id"`
	Note    string     `json:"note"`
	Bridge  string     `json:"bridge,omitempty"` // that it was used on, and the port
	Port    string     `json:"port,omitempty"`
	Cooled  int64      `json:"cooled,omitempty"` // the revision that made it cool, of one that was taken over
}

// testify is what the book says of the address, as evidence.
func testify(w *ipam.Withheld, format string, args ...any) json.RawMessage {
	says := testimony{Witness: "book", Address: w.Addr, At: w.Since.Wall.UTC(), Sandbox: w.Sandbox, UID: w.UID, LeaseID: w.LeaseID, Note: fmt.Sprintf(format, args...),
		Bridge: w.Bridge, Port: w.HostInterface}
	if w.State == ipam.Cooling {
		says.Cooled = w.Rev
	}
	return asJSON([]testimony{says})
}

// unseenIn says why no witness of the pool's bridge would see what may be in use at a
// withheld address; "" where one would.
func unseenIn(w *ipam.Withheld, p *ipam.Pool) string {
	switch {
	case w.State != ipam.Quarantined:
		return ""
	case w.Bridge == p.Bridge && w.Plug.Unseen && w.Plug.OfBoot(ipam.Now().BootID):
		return fmt.Sprintf("nothing of it was ever seen on bridge %s", p.Bridge)
	case w.Bridge == p.Bridge:
		return ""
	case w.Bridge == "":
		return fmt.Sprintf("which bridge it was used on is not recorded, and no witness of %s would see it on another", p.Bridge)
	}
	return fmt.Sprintf("it was used on bridge %s, and no witness of %s sees it there", w.Bridge, p.Bridge)
}

// cooledBefore is the revision that made a row cool that a pool has taken over, as the
// evidence with it says; 0 of any other row.
func cooledBefore(l *ipam.Lease) int64 {
	var says []testimony
	if l.State != ipam.Cooling || l.Reason != ipam.TakenOver || json.Unmarshal(l.Evidence, &says) != nil || len(says) != 1 {
		return 0
	}
	return min(max(says[0].Cooled, 0), l.Rev)
}

// takeOver makes a withheld address a row of the pool that contains it now: quarantined,
// until nothing of it is left, or cooling for what is left of its rest. What was in
// use on another bridge, or was never seen, only an operator clears: that it is unseen on this one says nothing.
func (t *tx) takeOver(who ipam.Who, p *ipam.Pool, w ipam.Withheld) error {
	who.Actor, who.Reason = ipam.ByOperator, ipam.TakenOver
	evidence := w.Evidence
	if w.State == ipam.Cooling || len(evidence) == 0 {
		evidence = testify(&w, "it was %s in pool %s (%s), which was removed", w.State, w.Pool, w.PoolUID)
	}
	now := ipam.Lease{Addr: w.Addr, PrefixLen: w.PrefixLen, ID: newID(), PoolUID: p.UID, Pool: p.Name, State: ipam.Quarantined, Hold: cmp.Or(w.Hold, unseenIn(&w, p)),
		Sandbox: w.Sandbox, UID: w.UID, Interface: w.Interface, Created: w.Since, Evidence: evidence,
		HostInterface: w.HostInterface, Netns: w.Netns, Plug: w.Plug}
	l, err := t.recordWith(who, nil, now, evidence, &w)
	if err != nil || w.State != ipam.Cooling {
		return err
	}
	if l, err = t.setState(who, l, ipam.Cooling, nil); err != nil {
		return err
	}
	l.Since, l.Cooled = w.Since, cooledBefore(l) // it is what is staged, and its rest goes on
	return nil
}
