package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

// quarantines are the verbs that keep an address back, and note what else is seen on it.
type quarantines struct{ w *writer }

// ClearAt lets a quarantined address cool, if its row is still at rev; else the
// answer is [ipam.ErrStale]. It becomes free after the cooldown, like any other.
// unseen is called in the transaction; an error ends the call and nothing
// changes. It may be nil where the address cannot be in use meanwhile.
func (b quarantines) ClearAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	return b.w.moveAt(ctx, who, id, rev, ipam.Cooling, nil, unseen, ipam.Quarantined)
}

// Quarantine keeps an address that is not held from being given, and all of a delegated
// prefix that cools with it: it was seen on the
// wire and no lease explains it. evidence is a JSON array and may not be empty. An
// address that is quarantined already stays as it is. Beyond the pool's quarantine
// share, and unless it is an operator's, the answer is [ipam.ErrQuarantineFull].
func (b quarantines) Quarantine(ctx context.Context, who ipam.Who, a netip.Addr, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := ipam.CheckEvidence(evidence); err != nil {
		return nil, err
	}
	return b.w.quarantine(ctx, who, ipam.Lease{Addr: a}, "", evidence, anyRev)
}

// Hold quarantines an address without a lease, until an operator
// clears it; who.Note says why and may not be empty. One that is quarantined
// already is held from now on. evidence is what the witnesses see, a JSON array;
// nil where they see none.
func (b quarantines) Hold(ctx context.Context, who ipam.Who, a netip.Addr, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := cmp.Or(ipam.CheckNote(who.Note), ipam.CheckSeen(evidence)); err != nil {
		return nil, err
	}
	return b.w.quarantine(ctx, who, ipam.Lease{Addr: a}, who.Note, evidence, anyRev)
}

// QuarantineAt is [Book.Quarantine] of an address as the caller saw it: if its
// row changed since rev, the answer is [ipam.ErrStale]; 0 is that of no row. What an
// operator did in between is worth more than what was planned before.
func (b quarantines) QuarantineAt(ctx context.Context, who ipam.Who, a netip.Addr, rev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := ipam.CheckEvidence(evidence); err != nil {
		return nil, err
	}
	return b.w.quarantine(ctx, who, ipam.Lease{Addr: a}, "", evidence, rev)
}

// ConflictAt notes that an address which is held, or being released, is seen
// under another than its owner. evidence is a JSON array, may not be empty, and
// stands in the lease until [Book.ConflictOverAt] or the lease's end. If the
// row changed since rev, the answer is [ipam.ErrStale].
func (b quarantines) ConflictAt(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	if err := ipam.CheckEvidence(evidence); err != nil {
		return nil, err
	}
	who.Reason = ipam.ConflictSeen
	return b.noteConflict(ctx, who, id, rev, evidence, evidence)
}

// ConflictOverAt notes that the conflict which stood on an address is over.
// evidence is what is seen of it yet, a JSON array; nil when nothing is.
func (b quarantines) ConflictOverAt(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	who.Reason = ipam.ConflictOver
	return b.noteConflict(ctx, who, id, rev, nil, evidence)
}

func (b quarantines) noteConflict(ctx context.Context, who ipam.Who, id string, rev int64, stands, evidence json.RawMessage) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if err := atRev(l, rev, l.State, ipam.Reserved, ipam.Bound, ipam.Paused, ipam.Releasing); err != nil {
			return nil, err
		}
		now := *l
		now.Conflict = stands
		return t.record(who, l, now, evidence)
	})
}

const anyRev = -1

func (w *writer) quarantine(ctx context.Context, who ipam.Who, former ipam.Lease, hold string, evidence json.RawMessage, rev int64) (*ipam.Lease, error) {
	return change(ctx, w, func(t *tx) (*ipam.Lease, error) {
		a := former.Addr
		pool, err := poolOfFormer(&t.View, &former)
		if err != nil {
			return nil, fmt.Errorf("quarantine %s: %w", a, err)
		}
		old := t.At(a)
		if old != nil && old.PrefixLen != 0 { // all of it, with the evidence about one address
			former.Addr, former.PrefixLen = old.Addr, old.PrefixLen
		} else if former.PrefixLen != 0 {
			if err := checkFormer(&t.View, pool, &former); err != nil {
				return nil, fmt.Errorf("quarantine %s: %w", former.Text(), err)
			}
		}
		if is := index.RevOf(old); rev != anyRev && is != rev {
			return nil, fmt.Errorf("quarantine %s: %w: its row is at %d, not %d", a, ipam.ErrStale, is, rev)
		}
		if old != nil && old.State == ipam.Quarantined {
			if hold == "" || hold == old.Hold {
				return old, nil
			}
			now := *old
			now.Hold = hold
			return t.move(who, old, now, evidence)
		}
		if most, full := t.QuarantineFull(pool); full && who.Actor != ipam.ByOperator {
			return nil, fmt.Errorf("quarantine %s: %w: %d of pool %s", a, ipam.ErrQuarantineFull, most, pool.Name)
		}
		if old != nil && old.State == ipam.Releasing { // its lease knows what the end of its sandbox is confirmed by
			return nil, fmt.Errorf("quarantine %s: lease %s of %q is %s: %w: if its removal can never be confirmed, force the release", a, old.ID, old.Sandbox, old.State, ipam.ErrState)
		}
		now := former
		now.PoolUID, now.Pool, now.State, now.Hold = pool.UID, pool.Name, ipam.Quarantined, hold
		if now.ID == "" || t.Lease(now.ID) != nil || t.Removed(now.ID) {
			now.ID = newID()
		}
		return t.move(who, old, now, evidence)
	})
}

// purge takes a row away, by the moves that any row makes on its way, and withholds its
// address. The last of them is the sweep's: it is what ends a cooldown.
func (t *tx) purge(who ipam.Who, e ipam.LeaseEffect) (err error) {
	l := e.Lease
	w := &ipam.Withheld{Addr: l.Addr, PrefixLen: l.PrefixLen, PoolUID: l.PoolUID, Pool: l.Pool, LeaseID: l.ID, State: ipam.Quarantined, Sandbox: l.Sandbox,
		UID: l.UID, Interface: l.Interface, Since: l.Since, Evidence: l.Evidence, Hold: l.Hold,
		HostInterface: l.HostInterface, Netns: l.Netns, Plug: l.Plug}
	if p := t.Pool(l.PoolUID); p != nil {
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
		w.State, w.Rev = ipam.Cooling, l.CoolingRev()
	} else if l, err = t.setState(who, l, ipam.Cooling, nil); err != nil {
		return err
	}
	who.Actor = ipam.ByReconciler
	gone := *l
	gone.State = ipam.Free
	w.Rev = cmp.Or(w.Rev, t.Rev()+1)
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
// until nothing of it is left, or cooling for what is left of its cooldown. What was in
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
	by := who
	by.Note = now.Hold // a salvage of the changes has only this one
	l, err := t.recordWith(by, nil, now, evidence, &w)
	if err != nil || w.State != ipam.Cooling {
		return err
	}
	if l, err = t.setState(who, l, ipam.Cooling, nil); err != nil {
		return err
	}
	l.Since, l.Cooled = w.Since, cooledBefore(l) // it is what is staged, and its cooldown goes on
	return nil
}
