package netdb

import (
	"context"
	"fmt"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

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
		_, err = b.w.history.ended(ctx, ended)
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
	if has := t.HostNamed(n.HostInterface); has != nil && index.InterfaceOf(has) != (index.SandboxInterface{UID: l.UID, Interface: l.Interface}) {
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
	if n.HostInterface != "" || n.Netns != "" {
		l.Plug.Unsaid = n.Plug.Unsaid
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
