package rebuild

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/salvage"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/workload"
)

func (r *restorer) who(actor ipam.Actor) ipam.Who {
	return ipam.Who{Actor: actor, Peer: "ipamd " + r.verb, Reason: ipam.Rebuilt}
}

// A restorer fills a new book: from the witnesses, and from what could be read
// of the old one only where it adds less than they do (whose a live workload was)
// or withholds an address.
type restorer struct {
	*netdb.Book
	verb      string // that makes the book
	old       salvage.Found
	leases    *workload.Leases // of the old book
	census    census.Census
	plugOf    func(ctx context.Context, hostInterface, netns string) (index int, inode uint64, err error)
	running   []census.Sighting // the runtime's part of the census
	runtime   bool              // it was asked about the old book's containers
	tombstone time.Duration     // how long a cancelled attempt stays so
	absent    bool              // another one answered than theirs
	rest      time.Duration     // the longest cooldown of the configuration and of the old book's pools

	held        map[netip.Addr]bool // more than one use it: no workload is adopted
	unexplained []string
}

// Adopt is the reconciler's. It takes away the id of a lease that the old book
// saw end: an id is never used again, and the new one has not seen it.
func (r *restorer) Adopt(ctx context.Context, who ipam.Who, a ipam.Adoption) (*ipam.Lease, error) {
	i := slices.IndexFunc(r.old.Leases, func(l *ipam.Lease) bool { return l.ID == a.ID && a.ID != "" })
	switch {
	case r.old.Ended[a.ID] || i >= 0 && r.old.Leases[i].State == ipam.Cooling:
		a.ID = ""
	case i >= 0 && r.old.Leases[i].Addr == a.Addr && r.old.Leases[i].Sandbox == a.Sandbox:
		r.asItWas(&a, r.old.Leases[i])
	}
	return r.Book.Adopt(ctx, who, a)
}

// asItWas completes an adoption by what only the old book knows of the lease.
func (r *restorer) asItWas(a *ipam.Adoption, l *ipam.Lease) {
	a.Attempt, a.Labels, a.Created, a.PoolUID = l.Attempt, l.Labels, l.Created, l.PoolUID
	if a.Sleep = r.old.Sleeps[l.ID]; a.Sleep == nil {
		return
	}
	if err := a.Sleep.Check(l.Addr); err != nil {
		r.explain("%s: it is without the policy that it had: %v", l.Addr, err)
		a.Sleep = nil
	}
}

func (r *restorer) explain(format string, args ...any) {
	r.unexplained = append(r.unexplained, fmt.Sprintf(format, args...))
}

// compareRuntime takes in which runtime has answered; "" is none. Another one than the
// old book's says nothing about the containers that the old leases record.
func (r *restorer) compareRuntime(id string) {
	if id != "" && r.old.Runtime != "" && id != r.old.Runtime {
		r.runtime, r.absent = false, true
		r.explain("containerd %s answers, and the old book's containers are in containerd %s: that it does not show them proves nothing", id, r.old.Runtime)
	}
}

// recordRuntime has the new book know the runtime that the old one knew, so that
// another one that answers is not believed before an operator confirms it.
func (r *restorer) recordRuntime(ctx context.Context) error {
	if r.old.Runtime == "" {
		return nil
	}
	return r.NoteRuntime(ctx, r.who(ipam.ByOperator), r.old.Runtime, true)
}

// before is what comes ahead of the first pass: what the old book had quarantined is
// quarantined again, so that no pass gives it away; and a workload that is seen to live
// gets the very lease that it had.
func (r *restorer) before(ctx context.Context) error {
	for _, l := range r.old.Leases {
		if l.State == ipam.Quarantined {
			if err := r.quarantine(ctx, l, l.Evidence, r.testimonyOf(l)); err != nil {
				return err
			}
		}
	}
	// Whose address is seen goes first: one interface of a sandbox may be
	// named by an older row, too.
	for _, atAddress := range []bool{true, false} {
		for _, l := range r.old.Leases {
			own := r.own(l)
			if seen := slices.ContainsFunc(own, func(s census.Sighting) bool { return l.Covers(s.Addr) }); len(own) == 0 || seen != atAddress {
				continue
			}
			if err := r.restore(ctx, l, own); err != nil {
				return err
			}
		}
	}
	return r.keepPrefixes(ctx)
}

// keepPrefixes has each delegated prefix be quarantined as a whole of which an address is
// seen, and whose owner is not shown to live: a pass would quarantine that address alone,
// and the rest could not be kept back with it any more.
func (r *restorer) keepPrefixes(ctx context.Context) error {
	for _, l := range r.old.Leases {
		seen := workload.SeenOf(r.census, l)
		if _, there := r.At(l.Addr); l.PrefixLen == 0 || there || len(seen) == 0 || isRest(l) {
			continue
		}
		said := r.testimonyOf(l)
		said.seen = append(said.seen, seen...)
		if err := r.quarantine(ctx, l, nil, said); err != nil {
			return err
		}
	}
	return nil
}

// own returns what shows that the owner of a lease lives. The rest of a delegated prefix is
// no lease that could be given back.
func (r *restorer) own(l *ipam.Lease) []census.Sighting {
	if isRest(l) {
		return nil
	}
	return r.leases.Live(l, workload.SeenOf(r.census, l), r.running)
}

// restore gives a lease back to its owner, in the state that it had, unless
// another workload is seen with the address, too.
func (r *restorer) restore(ctx context.Context, l *ipam.Lease, own []census.Sighting) error {
	if others := r.leases.Strangers(l, workload.SeenOf(r.census, l)); len(others) > 0 {
		r.held[l.Addr] = true
		r.explain("%s: the old book gave it to sandbox %q, who lives; but the %s witness sees it under another one as well%s",
			l.Addr, l.Sandbox, others[0].Witness, others[0].Where())
		// A daemon that starts takes every claim for a new one, so only a person
		// ends this.
		said := r.testimonyOf(l)
		said.hold = cmp.Or(said.hold, "its owner and another workload both use it: an operator decides whose it is")
		said.seen = append(said.seen, workload.SeenOf(r.census, l)...)
		said.disputed = true
		return r.quarantine(ctx, l, nil, said)
	}
	a := ipam.Adoption{Addr: l.Addr, PrefixLen: l.PrefixLen, ID: l.ID, Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface,
		Binding: r.binding(ctx, l, own)}
	if len(own) > 0 {
		a.Evidence = evidenceOf(own)
	}
	r.asItWas(&a, l)
	back, err := r.Book.Adopt(ctx, r.who(ipam.ByReconciler), a)
	switch {
	case refused(err):
		r.explain("%s: the old book gave it to sandbox %q, who lives; but: %v", l.Addr, l.Sandbox, err)
		return nil
	case err != nil:
		return err
	}
	switch l.State {
	case ipam.Paused:
		_, err = r.Pause(ctx, r.who(ipam.ByReconciler), back.ID, back.Rev)
	case ipam.Releasing: // never bound again: its removal is to be confirmed
		_, err = r.ReleaseAt(ctx, r.who(ipam.ByOperator), back.ID, back.Rev, nil)
	}
	return err
}

// cancel has the attempts stay cancelled that were: an allocation of one that is late is
// refused by the new book, too. It comes before any lease is back, so that it releases
// none: the attempt that a lease was of is not known any more.
func (r *restorer) cancel(ctx context.Context) error {
	now := ipam.Now()
	for _, c := range r.old.Cancelled {
		if now.Since(c.At) >= r.tombstone {
			continue
		}
		_, err := r.Cancel(ctx, r.who(ipam.ByReconciler), c.UID, c.Attempt)
		switch {
		case errors.Is(err, ipam.ErrInvalid), errors.Is(err, ipam.ErrTombstones):
			r.explain("attempt %d of sandbox uid %q was cancelled, and is not any more: %v", c.Attempt, c.UID, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// binding is how a lease is used: its recorded plumbing, and those of its
// containers that are there.
func (r *restorer) binding(ctx context.Context, l *ipam.Lease, own []census.Sighting) ipam.Binding {
	b := ipam.Binding{Netns: l.Netns, HostInterface: l.HostInterface, MAC: l.MAC, Plug: r.plug(ctx, l)}
	if !r.runtime || len(own) == 0 {
		b.Containers = slices.Clone(l.Containers)
	}
	for _, s := range own {
		if c := (ipam.Container{Namespace: s.Namespace, ID: s.Container}); s.Witness == census.Runtime && !slices.Contains(b.Containers, c) {
			b.Containers = append(b.Containers, c)
		}
	}
	slices.SortFunc(b.Containers, ipam.Container.Compare)
	return b
}

// plug is what the old book has of a lease's plumbing, as far as it is of this boot and of the links
// and namespaces that have its names now. A book may be as old as a backup: names are used again, and what they
// are now is recorded anew.
func (r *restorer) plug(ctx context.Context, l *ipam.Lease) ipam.Plug {
	boot, is := ipam.Now().BootID, l.Plug
	switch {
	case !is.OfBoot(boot) && workload.NeverSeen(l, boot): // of an older ipamd
		return ipam.Plug{Boot: boot, Unseen: true}
	case !is.OfBoot(boot):
		return ipam.Plug{}
	}
	index, inode, _ := r.plugOf(ctx, l.HostInterface, l.Netns) // what is not known is found by its name
	if is.Index != index {
		is.Index = 0
	}
	if inode != 0 && is.Inode != inode {
		is.Inode = 0
	}
	return is
}

// A testimony is what is known of an address that is withheld.
type testimony struct {
	seen  []census.Sighting
	hold  string // why only an operator ends it; "" when being unseen does
	cools bool   // it cools, and is not quarantined
	// disputed: two use it, so its former owner cannot have it back by asking.
	disputed bool
}

// testimonyOf is what the old book records of an address. An operator has to clear an address
// that an operator held, that of a paused sandbox, one whose row could not be read, and one whose
// containers could not be looked up because the runtime did not answer.
func (r *restorer) testimonyOf(l *ipam.Lease) testimony {
	s := census.Sighting{Addr: l.Addr, Witness: census.Book, At: l.Since.Wall, Sandbox: l.Sandbox, UID: l.UID, LeaseID: l.ID,
		Port: l.HostInterface, MAC: l.MAC, Note: fmt.Sprintf("the book before the rebuild had it as %s", l.State)}
	t := testimony{hold: l.Hold}
	switch {
	case l.State == "":
		s.Note = "the book before the rebuild had a row of it that cannot be read"
		t.hold = cmp.Or(t.hold, "nothing would show a paused sandbox that has it")
	case l.State == ipam.Paused:
		t.hold = cmp.Or(t.hold, "nothing would show its sandbox, which is paused")
	case r.absent && len(l.Containers) > 0 && (l.State.Open() || l.State == ipam.Releasing):
		t.hold = cmp.Or(t.hold, "the runtime that its containers are in did not answer")
	}
	if len(t.hold) > ipam.MaxNote || !utf8.ValidString(t.hold) {
		t.hold = "the old book held it back, in words that cannot be stored"
	}
	t.seen = []census.Sighting{s}
	return t
}

// join adds sightings to the evidence that a book had. What cannot be read is an
// error, and left out.
func join(had json.RawMessage, more []census.Sighting) (json.RawMessage, error) {
	var all []json.RawMessage
	var err error
	if len(had) > 0 {
		if err = json.Unmarshal(had, &all); err != nil {
			all = nil
		}
	}
	for _, s := range more {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err) // sightings always marshal
		}
		all = append(all, b)
	}
	b, bad := json.Marshal(all)
	if bad != nil {
		panic(bad) // raw messages that were read always marshal
	}
	return b, err
}

// evidenceOf is sightings as the book keeps them.
func evidenceOf(seen []census.Sighting) json.RawMessage {
	b, _ := join(nil, seen) // nothing of before, so nothing that cannot be read
	return b
}

// passed takes in what a pass could not do or explain.
func (r *restorer) passed(rep *reconciler.Report) {
	for _, a := range rep.Actions {
		if a.Result != reconciler.Done {
			r.explain("%s: %s %s: %s", a.Addr, a.Kind, a.Result, cmp.Or(a.Err, a.Reason))
		}
	}
	for _, f := range rep.Findings {
		r.explain("%s: %s", f.Addr, f.Detail)
	}
}
