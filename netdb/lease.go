package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

// leases are the verbs of a lease's owner: from its reservation to the pauses of its sandbox.
type leases struct{ w *writer }

// A Reservation asks for one address that was picked before.
type Reservation struct {
	Candidate  Candidate
	Sandbox    string
	UID        string
	Interface  string
	Attempt    int64
	BindWithin time.Duration
	Labels     map[string]string
	Evidence   json.RawMessage // what the witnesses reported, when there is something to store
	// Unseen is called in the transaction, last of all: an error ends the
	// whole request and nothing is written. It runs inside the commit and
	// must not wait.
	Unseen func() error
	Naming Naming // of the link on the host
	// Binding is where the lease is used already: it is bound in the same transaction, by
	// BoundBy. nil leaves it reserved.
	Binding *ipam.Binding
	BoundBy ipam.Who
	Slot    *ipam.NewSlot // nil: of a sandbox
}

// Check returns an [ipam.FieldError] for the first argument that cannot be stored.
func (r *Reservation) Check() error {
	err := cmp.Or(ipam.CheckName("sandbox", r.Sandbox), ipam.CheckName("uid", r.UID), ipam.CheckInterface(r.Interface))
	switch {
	case err != nil:
		return err
	case r.Attempt < 1:
		return ipam.Invalid("attempt", "%d is below 1", r.Attempt)
	case r.BindWithin <= 0 || r.BindWithin > ipam.MaxBindWait:
		return ipam.Invalid("bind_within", "%v is not above 0 and up to %v", r.BindWithin, ipam.MaxBindWait)
	}
	if ipam.IsSlotUID(r.UID) != (r.Slot != nil) {
		return ipam.Invalid("uid", "%.80q begins as those of ipamd's own leases do: choose another", r.UID)
	}
	if r.Naming.Want != "" {
		if err := ipam.CheckHostName(r.Naming.Want); err != nil {
			return err
		}
	}
	if r.Binding != nil {
		if err := r.Binding.Check(); err != nil {
			return err
		}
	}
	return ipam.CheckLabels(r.Labels)
}

// Reserve takes every candidate for its sandbox, or none. It returns once
// that is durable.
//
// Errors: [ipam.OwnedError] (the owner has a lease), [ipam.ErrCancelled], [ipam.ErrTaken],
// [ipam.FieldError], whatever Unseen returned, and those of the file.
func (b leases) Reserve(ctx context.Context, who ipam.Who, rs ...Reservation) ([]*ipam.Lease, error) {
	for i := range rs {
		if err := rs[i].Check(); err != nil {
			return nil, err
		}
	}
	return change(ctx, b.w, func(t *tx) ([]*ipam.Lease, error) {
		out := make([]*ipam.Lease, len(rs))
		for i, r := range rs {
			l, err := t.reserve(who, r)
			if err == nil && r.Binding != nil {
				l, err = t.bind(r.BoundBy, l, 0, *r.Binding)
			}
			if err != nil {
				return nil, err
			}
			out[i] = l
		}
		return out, nil
	})
}

func (t *tx) reserve(who ipam.Who, r Reservation) (*ipam.Lease, error) {
	pool := r.Candidate.Pool
	now := ipam.Lease{
		Addr: r.Candidate.Addr, PrefixLen: r.Candidate.PrefixLen, ID: newID(), PoolUID: pool.UID, Pool: pool.Name, State: ipam.Reserved,
		Sandbox: r.Sandbox, UID: r.UID, Interface: r.Interface, Attempt: r.Attempt,
		BindWithin: r.BindWithin, Labels: r.Labels, Evidence: r.Evidence, Cut: r.Candidate.Cut,
	}
	if t.cancelled(r.UID, r.Attempt) {
		return nil, fmt.Errorf("sandbox %q, attempt %d: %w", r.Sandbox, r.Attempt, ipam.ErrCancelled)
	}
	p := t.Pool(pool.UID)
	if p == nil || p.State == ipam.PoolDraining || p.Outside(&now) != "" || !reachesLike(&p.PoolSpec, pool) {
		return nil, fmt.Errorf("address %s: %w", now.Text(), ipam.ErrPoolChanged)
	}
	if held := t.Open(now.Owner()); held != nil {
		return nil, &ipam.OwnedError{Lease: held}
	}
	old, ends, err := t.Still(r.Candidate)
	if err != nil {
		return nil, err
	}
	rested := who
	rested.Reason = ipam.Rested
	for _, l := range ends {
		if _, err := t.setState(rested, l, ipam.Free, nil); err != nil {
			return nil, err
		}
	}
	if err := checkKept(p, now.Range(), r.Sandbox); err != nil {
		return nil, err
	}
	if r.Unseen != nil {
		if err := r.Unseen(); err != nil {
			return nil, err
		}
	}
	given, err := nameLink(&t.View, &now, r.Naming)
	if err != nil {
		return nil, err
	}
	l, err := t.move(who, old, now, r.Evidence)
	if err == nil && given != nil {
		t.Rename(given, nil)
	}
	if err == nil && r.Slot != nil {
		err = t.reserveSlot(l, r.Slot)
	}
	return l, err
}

// reachesLike reports that a sandbox of the pool is on the same wire as when the pool was p:
// nothing was seen of an address on another bridge, and what was the gateway may be another's.
func reachesLike(s *ipam.PoolSpec, p *ipam.Pool) bool {
	return s.Bridge == p.Bridge && s.Gateway == p.Gateway && s.Prefix == p.Prefix
}

// Name leases a host interface name beside an open lease that has none. Where it has one
// that fits, nothing is written. Errors: [ipam.ErrState] (it has another one, or was released),
// [ipam.ErrNameTaken], [ipam.FieldError].
func (b leases) Name(ctx context.Context, who ipam.Who, id string, n Naming) (*ipam.Lease, error) {
	if err := ipam.CheckHostName(n.Want); err != nil {
		return nil, err
	}
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if !l.State.Open() {
			return nil, fmt.Errorf("name a link of %s: %w: it is %s", l.Addr, ipam.ErrState, l.State)
		}
		given, err := nameLink(&t.View, l, n)
		if given == nil || err != nil {
			return l, err
		}
		now, err := t.move(who, l, *l, nil)
		if err == nil {
			t.Rename(given, nil)
		}
		return now, err
	})
}

// Renew notes that a sandbox asks for its lease again, and will bind it within
// a time. A reserved one has at least half of that left afterwards: the answer
// would be worth nothing if it ended a moment later. A higher attempt is noted,
// so that a late cancel of a lower one leaves the lease alone. Where there is
// nothing to note nothing is written, and the lease comes back as every change
// before has left it. One that was released is [ipam.ErrState].
func (b leases) Renew(ctx context.Context, who ipam.Who, id string, attempt int64, within time.Duration) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if t.cancelled(l.UID, attempt) {
			return nil, fmt.Errorf("sandbox %q, attempt %d: %w", l.Sandbox, attempt, ipam.ErrCancelled)
		}
		if !l.State.Open() {
			return nil, fmt.Errorf("renew %s: %w: it is %s", l.Addr, ipam.ErrState, l.State)
		}
		now := *l
		now.Attempt = max(attempt, l.Attempt)
		if past := t.now.Since(l.Since); l.State == ipam.Reserved && l.BindWithin-past < within/2 {
			now.BindWithin = past + within
		}
		if now.Attempt == l.Attempt && now.BindWithin == l.BindWithin {
			return l, nil
		}
		return t.move(who, l, now, nil)
	})
}

// checkKept returns an [ipam.KeptError] when a pool keeps an address of
// a range for another than a sandbox, or one of a delegated prefix for any.
func checkKept(p *ipam.Pool, r ipam.Range, sandbox string) error {
	for _, k := range p.Kept {
		if r.Contains(k.Address) && (k.Sandbox != sandbox || r.From != r.To) {
			return &ipam.KeptError{Addr: k.Address, Pool: p.Name, Sandbox: k.Sandbox}
		}
	}
	return nil
}

// recordBinding adds a binding to what a lease records. Containers that are recorded stay
// unless they are named as gone, and so does what the binding leaves empty: who
// knows of one part must not erase what others know of the rest.
func recordBinding(l *ipam.Lease, n ipam.Binding) error {
	var kept []ipam.Container
	for _, c := range slices.Concat(l.Containers, n.Containers) {
		if !slices.Contains(n.Gone, c) && !slices.Contains(kept, c) {
			kept = append(kept, c)
		}
	}
	if len(kept) > ipam.MaxContainers {
		return ipam.Invalid("containers", "%d with those recorded before are more than %d: name those that are gone", len(kept), ipam.MaxContainers)
	}
	l.Containers = kept
	recordPlug(l, n)
	for _, part := range []struct {
		into  *string
		value string
	}{{&l.Netns, n.Netns}, {&l.HostInterface, n.HostInterface}, {&l.MAC, n.MAC}} {
		if part.value != "" {
			*part.into = part.value
		}
	}
	return nil
}

// sameUse reports whether two rows say the same of how a lease is used.
func sameUse(l, other *ipam.Lease) bool {
	return l.State == other.State && slices.Equal(l.Containers, other.Containers) &&
		l.Netns == other.Netns && l.HostInterface == other.HostInterface && l.MAC == other.MAC && l.Plug == other.Plug
}

// Bind adds to what is recorded of where an open lease is used. What is
// recorded already changes nothing. A lease that is released is [ipam.ErrState], and a host
// interface whose name another's interface has leased is [ipam.ErrNameTaken].
//
// ifRev, unless it is 0, is the revision at which the caller saw the lease: if
// it changed since, the answer is [ipam.StaleError]. A request that would change
// nothing succeeds whatever ifRev is, so that a caller who lost the reply may
// repeat it.
func (b leases) Bind(ctx context.Context, who ipam.Who, id string, ifRev int64, n ipam.Binding) (*ipam.Lease, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) { return t.bind(who, l, ifRev, n) })
}

// BindEach is [Book.Bind] of several leases by one binding, all of them or none. ifRev, where it
// is not 0, is of the first.
func (b leases) BindEach(ctx context.Context, who ipam.Who, ids []string, ifRev int64, n ipam.Binding) ([]*ipam.Lease, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	var ended string
	out, err := change(ctx, b.w, func(t *tx) ([]*ipam.Lease, error) {
		var out []*ipam.Lease
		seen := ifRev
		for _, id := range ids {
			l := t.Lease(id)
			if l == nil {
				ended = id
				return nil, errEnded
			}
			now, err := t.bind(who, l, seen, n)
			if err != nil {
				return nil, err
			}
			out, seen = append(out, now), 0
		}
		return out, nil
	})
	if err == errEnded {
		_, err = b.w.past.ended(ctx, ended)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (t *tx) bind(who ipam.Who, l *ipam.Lease, ifRev int64, n ipam.Binding) (*ipam.Lease, error) {
	now := *l
	if err := recordBinding(&now, n); err != nil {
		return nil, err
	}
	if has := t.HostNamed(n.HostInterface); has != nil && index.LinkOf(has) != (index.Link{UID: l.UID, Interface: l.Interface}) {
		return nil, fmt.Errorf("bind %s to host interface %s: %w: sandbox uid %q leased that name for %s", l.Addr, n.HostInterface, ipam.ErrNameTaken, has.UID, has.Interface)
	}
	if l.State == ipam.Reserved {
		now.State = ipam.Bound
		if len(now.Containers) == 0 && now.Netns == "" && now.HostInterface == "" && now.MAC == "" {
			return nil, ipam.Invalid("gone", "the lease records none of them, and nothing else to bind to")
		}
	}
	if !l.State.Open() {
		return nil, fmt.Errorf("bind %s: %w: it is %s", l.Addr, ipam.ErrState, l.State)
	}
	return t.note(who, l, now, ifRev)
}

// Pause marks a bound lease as paused: its address stays its own without
// limit. A paused one stays so. ifRev is as of [Book.Bind].
//
// How a caller paused it before does not count any more, nor does a flight that is under way: a
// mode that is not this pause's may say that a sandbox stood still in memory, and so is gone with
// its boot. A reconciler that finds it paused leaves what is recorded.
func (b leases) Pause(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	return b.pause(ctx, who, id, ifRev, ipam.Paused)
}

// Resume marks a paused lease as bound again. ifRev is as of [Book.Bind].
func (b leases) Resume(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	return b.pause(ctx, who, id, ifRev, ipam.Bound)
}

func (b leases) pause(ctx context.Context, who ipam.Who, id string, ifRev int64, want ipam.State) (*ipam.Lease, error) {
	return b.w.changeLease(ctx, id, func(t *tx, l *ipam.Lease) (*ipam.Lease, error) {
		if l.State != ipam.Bound && l.State != ipam.Paused {
			return nil, fmt.Errorf("move %s to %s: %w: it is %s", l.Addr, want, ipam.ErrState, l.State)
		}
		now := *l
		now.State = want
		note := t.note
		if l.State == ipam.Paused && want == ipam.Paused && who.Actor != ipam.ByReconciler && t.Sleep(id) != nil {
			note = t.noteAnew
		}
		next, err := note(who, l, now, ifRev)
		switch {
		case err != nil || next == l || want != ipam.Paused:
		case who.Reason == ipam.Rebuilt: // what was recorded of the tasks is as it was
		case who.Actor == ipam.ByReconciler: // it has seen the tasks stand still
			t.setStill(l.ID)
		default:
			t.EndSleep(l.ID)
		}
		return next, err
	})
}

// note changes how a lease is used, as the caller saw it at ifRev.
func (t *tx) note(who ipam.Who, l *ipam.Lease, now ipam.Lease, ifRev int64) (*ipam.Lease, error) {
	if sameUse(l, &now) {
		return l, nil
	}
	return t.noteAnew(who, l, now, ifRev)
}

// noteAnew is note of what changes something beside the row as well.
func (t *tx) noteAnew(who ipam.Who, l *ipam.Lease, now ipam.Lease, ifRev int64) (*ipam.Lease, error) {
	if err := asSeen(l, ifRev); err != nil {
		return nil, err
	}
	return t.move(who, l, now, nil)
}

// asSeen returns an [ipam.StaleError] when a lease is at another revision than the
// caller saw it at; 0 is any.
func asSeen(l *ipam.Lease, ifRev int64) error {
	switch {
	case ifRev < 0:
		return ipam.Invalid("if_revision", "%d is below 0", ifRev)
	case ifRev != 0 && ifRev != l.Rev:
		return &ipam.StaleError{Lease: l, Seen: ifRev}
	}
	return nil
}

// recordPlug takes in what a binding names, before its names are recorded. What could not
// be looked up is not known: a name that is bound again may be of a later link.
func recordPlug(l *ipam.Lease, n ipam.Binding) {
	named := func(now, was string) bool { return now != "" && now != was }
	anew := l.State == ipam.Reserved || named(n.HostInterface, l.HostInterface) || named(n.Netns, l.Netns) ||
		l.HostInterface == "" && l.Netns == "" && named(n.MAC, l.MAC)
	if n.Plug.Boot != "" && !l.Plug.OfBoot(n.Plug.Boot) {
		anew = true                           // no look was made for it in this boot
		l.Plug = ipam.Plug{Boot: n.Plug.Boot} // links and namespaces of before are gone
	}
	was := l.Plug.Link()
	if n.HostInterface != "" {
		l.Plug.Index = n.Plug.Index
	}
	if n.Netns != "" {
		l.Plug.Inode = n.Plug.Inode
	}
	if anew || n.Plug.Behind != 0 {
		l.Plug.Behind = n.Plug.Behind
	}
	if l.Plug.Link() != was || n.Takes {
		l.Plug.At = n.Plug.At
	}
	switch {
	case n.Seen:
		l.Plug.Unseen = false
	case anew:
		l.Plug.Unseen = n.Plug.Unseen
	case !n.Plug.Unseen && (n.HostInterface != "" || n.Netns != ""): // what is named again has come
		l.Plug.Unseen = false
	}
}
