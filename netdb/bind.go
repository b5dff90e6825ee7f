package netdb

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
)

// A Binding is what a caller knows of how a lease is used. It adds: what is left empty
// stays as it was.
type Binding struct {
	Containers    []Container
	Gone          []Container // are recorded no more; not among Containers
	Netns         string      // path of the network namespace
	HostInterface string      // the port of the bridge
	MAC           string      // of the sandbox's interface
	Plug          Plug        // what Netns and HostInterface are just now, as far as is known
	Seen          bool        // a witness sees the lease's sandbox on the pool's bridge, whatever else is named
	Takes         bool        // HostInterface, from another sandbox's lease that records the same link since
}

// Check returns a [FieldError] for the first part that cannot be stored, and
// spells the MAC as the kernel does.
func (n *Binding) Check() error {
	if len(n.Containers) == 0 && len(n.Gone) == 0 && n.Netns == "" && n.HostInterface == "" && n.MAC == "" && !n.Seen {
		return invalid("containers", "nothing to bind to: name a container, a netns, a host interface or a MAC")
	}
	if err := cmp.Or(checkContainers("containers", n.Containers), checkContainers("gone", n.Gone)); err != nil {
		return err
	}
	for i, c := range n.Gone {
		if slices.Contains(n.Containers, c) {
			return invalid(fmt.Sprintf("gone[%d]", i), "%s/%s is among the containers, too", c.Namespace, c.ID)
		}
	}
	if n.Netns != "" && (!strings.HasPrefix(n.Netns, "/") || len(n.Netns) > 4095) {
		return invalid("netns", "%.80q is no absolute path", n.Netns)
	}
	if n.HostInterface != "" {
		if err := checkInterface(n.HostInterface); err != nil {
			return invalid("host_interface", "%.40q is no interface name", n.HostInterface)
		}
	}
	if n.MAC != "" {
		mac, err := net.ParseMAC(n.MAC)
		if err != nil || len(mac) != 6 {
			return invalid("mac", "%.40q is no Ethernet address", n.MAC)
		}
		if mac[0]&1 != 0 || [6]byte(mac) == ([6]byte{}) {
			return invalid("mac", "%s is no interface's own address: want a unicast one", mac)
		}
		n.MAC = mac.String()
	}
	return nil
}

// record adds a binding to what a lease records. The containers of before stay
// unless they are named as gone, and so does what the binding leaves empty: who
// knows of one part must not erase what others know of the rest.
func (l *Lease) record(n Binding) error {
	var kept []Container
	for _, c := range slices.Concat(l.Containers, n.Containers) {
		if !slices.Contains(n.Gone, c) && !slices.Contains(kept, c) {
			kept = append(kept, c)
		}
	}
	if len(kept) > MaxContainers {
		return invalid("containers", "%d with those recorded before are more than %d: name those that are gone", len(kept), MaxContainers)
	}
	l.Containers = kept
	l.plug(n)
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
func sameUse(l, other *Lease) bool {
	return l.State == other.State && slices.Equal(l.Containers, other.Containers) &&
		l.Netns == other.Netns && l.HostInterface == other.HostInterface && l.MAC == other.MAC && l.Plug == other.Plug
}

// Bind adds to what is recorded of where an open lease is used. What is
// recorded already changes nothing. A lease that is released is [ErrState], and a host
// interface whose name another's interface has leased is [ErrNameTaken].
//
// ifRev, unless it is 0, is the revision at which the caller saw the lease: if
// it changed since, the answer is [StaleError]. A request that would change
// nothing succeeds whatever ifRev is, so that a caller who lost the reply may
// repeat it.
func (b *Book) Bind(ctx context.Context, who Who, id string, ifRev int64, n Binding) (*Lease, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	return b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) { return t.bind(who, l, ifRev, n) })
}

// BindEach is [Book.Bind] of several leases by one binding, all of them or none. ifRev, where it
// is not 0, is of the first.
func (b *Book) BindEach(ctx context.Context, who Who, ids []string, ifRev int64, n Binding) ([]*Lease, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	var ended string
	out, err := change(ctx, b.writer, func(t *tx) ([]*Lease, error) {
		var out []*Lease
		seen := ifRev
		for _, id := range ids {
			l := t.lease(id)
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
		_, err = b.ended(ctx, ended)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (t *tx) bind(who Who, l *Lease, ifRev int64, n Binding) (*Lease, error) {
	now := *l
	if err := now.record(n); err != nil {
		return nil, err
	}
	if has := t.named(n.HostInterface); has != nil && has.link() != (link{l.UID, l.Interface}) {
		return nil, fmt.Errorf("bind %s to host interface %s: %w: sandbox uid %q leased that name for %s", l.Addr, n.HostInterface, ErrNameTaken, has.UID, has.Interface)
	}
	if l.State == Reserved {
		now.State = Bound
		if len(now.Containers) == 0 && now.Netns == "" && now.HostInterface == "" && now.MAC == "" {
			return nil, invalid("gone", "the lease records none of them, and nothing else to bind to")
		}
	}
	if !l.State.Open() {
		return nil, fmt.Errorf("bind %s: %w: it is %s", l.Addr, ErrState, l.State)
	}
	return t.note(who, l, now, ifRev)
}

// Names reports whether a lease records what a binding names.
func (l *Lease) Names(n Binding) bool {
	for _, part := range [][2]string{{l.Netns, n.Netns}, {l.HostInterface, n.HostInterface}, {l.MAC, n.MAC}} {
		if part[1] != "" && part[0] != part[1] {
			return false
		}
	}
	return !slices.ContainsFunc(n.Containers, func(c Container) bool { return !slices.Contains(l.Containers, c) })
}

// Pause marks a bound lease as paused: its address stays its own without
// limit. A paused one stays so. ifRev is as of [Book.Bind].
//
// How a caller paused it before does not count any more, nor does a flight that is under way: a
// mode that is not this pause's may say that a sandbox stood still in memory, and so is gone with
// its boot. A reconciler that finds it paused leaves what is recorded.
func (b *Book) Pause(ctx context.Context, who Who, id string, ifRev int64) (*Lease, error) {
	return b.pause(ctx, who, id, ifRev, Paused)
}

// Resume marks a paused lease as bound again. ifRev is as of [Book.Bind].
func (b *Book) Resume(ctx context.Context, who Who, id string, ifRev int64) (*Lease, error) {
	return b.pause(ctx, who, id, ifRev, Bound)
}

func (b *Book) pause(ctx context.Context, who Who, id string, ifRev int64, want State) (*Lease, error) {
	return b.changeLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		if l.State != Bound && l.State != Paused {
			return nil, fmt.Errorf("move %s to %s: %w: it is %s", l.Addr, want, ErrState, l.State)
		}
		now := *l
		now.State = want
		note := t.note
		if l.State == Paused && want == Paused && who.Actor != ByReconciler && t.sleep(id) != nil {
			note = t.noteAnew
		}
		next, err := note(who, l, now, ifRev)
		switch {
		case err != nil || next == l || want != Paused:
		case who.Reason == Rebuilt: // what was recorded of the tasks is as it was
		case who.Actor == ByReconciler: // it has seen the tasks stand still
			t.setStill(l.ID)
		default:
			t.endSleep(l.ID)
		}
		return next, err
	})
}

// note changes how a lease is used, as the caller saw it at ifRev.
func (t *tx) note(who Who, l *Lease, now Lease, ifRev int64) (*Lease, error) {
	if sameUse(l, &now) {
		return l, nil
	}
	return t.noteAnew(who, l, now, ifRev)
}

// noteAnew is note of what changes something beside the row as well.
func (t *tx) noteAnew(who Who, l *Lease, now Lease, ifRev int64) (*Lease, error) {
	if err := asSeen(l, ifRev); err != nil {
		return nil, err
	}
	return t.move(who, l, now, nil)
}

// asSeen returns a [StaleError] when a lease is at another revision than the
// caller saw it at; 0 is any.
func asSeen(l *Lease, ifRev int64) error {
	switch {
	case ifRev < 0:
		return invalid("if_revision", "%d is below 0", ifRev)
	case ifRev != 0 && ifRev != l.Rev:
		return &StaleError{Lease: l, Seen: ifRev}
	}
	return nil
}

// plug takes in what a binding names, before its names are recorded. What could not
// be looked up is not known: a name that is bound again may be of a later link.
func (l *Lease) plug(n Binding) {
	named := func(now, was string) bool { return now != "" && now != was }
	anew := l.State == Reserved || named(n.HostInterface, l.HostInterface) || named(n.Netns, l.Netns) ||
		l.HostInterface == "" && l.Netns == "" && named(n.MAC, l.MAC)
	if n.Plug.Boot != "" && !l.Plug.OfBoot(n.Plug.Boot) {
		anew = true                      // no look was made for it in this boot
		l.Plug = Plug{Boot: n.Plug.Boot} // links and namespaces of before are gone
	}
	if n.HostInterface != "" {
		if n.Plug.Index != l.Plug.Index || n.Takes {
			l.Plug.At = n.Plug.At
		}
		l.Plug.Index = n.Plug.Index
	}
	if n.Netns != "" {
		l.Plug.Inode = n.Plug.Inode
	}
	if anew || n.Plug.Behind != 0 {
		l.Plug.Behind = n.Plug.Behind
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
