// Package remains finds what is left of sandboxes where no witness looks. Witnesses read the namespaces
// that ports of the watched bridges lead to; "beside the bridges" is every other one, and every link that is no
// such port. Whose it is, and what follows from it, is decided by others.
package remains

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/share"
)

// mostLinks bounds how many links of a namespace are listed: there are as many as its guest likes.
const mostLinks = 8192

// A Machine asks the kernel of one machine, on sockets of its own, so that no reading of a witness keeps
// it waiting. It is safe for concurrent use.
type Machine struct {
	dial  func(context.Context) (*rtnl.Socket, error)
	paths *nspath.Paths

	ids     *rtnl.Cached // of the namespaces: asked at each release
	besides *share.Run[Watch, beside]
}

// New returns a machine whose host's namespace is the one that dial opens a socket in.
func New(dial func(context.Context) (*rtnl.Socket, error), paths *nspath.Paths) *Machine {
	m := &Machine{dial: dial, paths: paths, ids: rtnl.NewCached(dial)}
	m.besides = share.New(m.readBeside)
	return m
}

// Close waits for the question that is under way.
func (m *Machine) Close() { m.ids.Close() }

// socket dials one for the caller, who closes it.
func (m *Machine) socket(ctx context.Context) (*rtnl.Socket, error) {
	k, err := m.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("look beside the bridges: %w", err)
	}
	k.Redial = func() (*rtnl.Socket, error) { return m.dial(ctx) } // behind a list that was cut short
	return k, nil
}

// Of looks where a sandbox was last known to be. has tells which addresses are the sandbox's, watched
// at which bridges witnesses look. An error means that some of it could not be looked at: the
// rest says nothing then.
func (m *Machine) Of(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool, watched func(bridge string) bool) (r census.Remains, err error) {
	k, err := m.socket(ctx)
	if err != nil {
		return r, err
	}
	defer k.Close()
	look := func(index int, name string) *census.HostLink {
		if err != nil {
			return nil
		}
		var l *census.HostLink
		l, err = hostLink(k, index, name, at.Name, has, watched)
		return l
	}
	if at.Link != 0 {
		r.Link = look(at.Link, "")
	}
	if at.Name != "" && (r.Link == nil || r.Link.Name != at.Name) {
		r.Named = look(0, at.Name)
	}
	if at.Behind != 0 {
		r.Behind = look(at.Behind, "")
	}
	if err == nil {
		err = m.netns(ctx, k, at, has, &r)
	}
	return r, err
}

// PortOf returns the name of the bridge that a link is a port of: that of an index, or the one of a name
// where the index is 0. It is "" of a link that is not there, or is a port of none.
func (m *Machine) PortOf(ctx context.Context, name string, index int) (bridge string, err error) {
	k, err := m.socket(ctx)
	if err != nil {
		return "", err
	}
	defer k.Close()
	l, err := linkOf(k, index, name)
	if l == nil || err != nil {
		return "", err
	}
	return masterOf(k, l)
}

// Moved says in a sentence which namespace a link is in that was the host's: one that is moved keeps
// its index, where that is free there, and its name. It is "" of one that is in none that the kernel has an id for.
// Each namespace is asked, which takes some 5 µs.
func (m *Machine) Moved(ctx context.Context, index int, name string) (string, error) {
	k, err := m.socket(ctx)
	if err != nil {
		return "", err
	}
	defer k.Close()
	ids, err := k.NetnsIDs()
	if err != nil {
		return "", fmt.Errorf("list the namespaces: %w", err)
	}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		l, err := k.Link(id, index)
		switch {
		case err == nil && l.Name == name:
			return fmt.Sprintf("%s is in another namespace, nsid:%d", name, id), nil
		case err == nil, rtnl.IsGone(err), rtnl.IsVanishing(k, id, err), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		default:
			return "", fmt.Errorf("look for link %d %s in nsid %d: %w", index, name, id, err)
		}
	}
	return "", nil
}

// linkOf looks up the link of an index, or the one of a name where the index is 0. It is nil where
// there is none.
func linkOf(k *rtnl.Socket, index int, name string) (l *rtnl.Link, err error) {
	switch {
	case index != 0:
		l, err = k.Link(rtnl.NoNetns, index)
	case name != "" && len(name) < unix.IFNAMSIZ:
		l, err = k.LinkByName(name)
	}
	if rtnl.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for link %d %s: %w", index, name, err)
	}
	return l, nil
}

// masterOf is the name of the bridge that a link is a port of; "" is none.
func masterOf(k *rtnl.Socket, l *rtnl.Link) (string, error) {
	if l.Master == 0 {
		return "", nil
	}
	of, err := k.Link(rtnl.NoNetns, l.Master)
	if rtnl.IsGone(err) { // it ended just now, and its ports are on none
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up the bridge of %s: %w", l.Name, err)
	}
	return of.Name, nil
}

// hostLink is the link of an index, or the one of a name where the index is 0. What of the sandbox it leads to is looked
// for where it is a port of no bridge, or has not the recorded name.
func hostLink(k *rtnl.Socket, index int, name, recorded string, has func(netip.Addr) bool, watched func(bridge string) bool) (*census.HostLink, error) {
	l, err := linkOf(k, index, name)
	if l == nil || err != nil {
		return nil, err
	}
	h := &census.HostLink{Index: l.Index, Name: l.Name, Tap: l.IsTap() && l.Behind == rtnl.NoNetns, Leads: l.Behind != rtnl.NoNetns}
	if h.Bridge, err = masterOf(k, l); err != nil {
		return nil, err
	}
	h.Watched = h.Bridge != "" && watched(h.Bridge)
	if h.Leads {
		end, err := k.Link(l.Behind, l.Peer)
		if err == nil {
			h.MAC = end.MAC.String()
		}
		h.Hidden = err != nil && !rtnl.IsGone(err) // a namespace that is being taken down shows nothing
	}
	if h.Bridge == "" || h.Name != recorded {
		h.Inside, err = behind(k, l, has)
	}
	if err != nil && h.Bridge != "" { // it may be another's, who could keep the release waiting
		h.Inside, err = unreadable, nil
	}
	return h, err
}

// behind is what a sandbox has behind a link.
func behind(k *rtnl.Socket, l *rtnl.Link, has func(netip.Addr) bool) (string, error) {
	switch {
	case l.Behind == rtnl.Unassigned:
		return "", fmt.Errorf("look behind %s: the kernel does not name the namespace", l.Name)
	case l.IsOpenTap():
		return "a machine that has it open", nil
	case l.Behind == rtnl.NoNetns:
		return "", nil
	}
	return inside(k, l.Behind, has)
}

// inside names what a sandbox has in a namespace: one of its addresses, or a tap that is open,
// behind which a machine is whose addresses nothing shows. It is "" where there is neither, and of
// a namespace that ends.
func inside(k *rtnl.Socket, nsid int, has func(netip.Addr) bool) (string, error) {
	all, err := k.Addresses(nsid)
	if rtnl.IsGone(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the addresses of network namespace %d: %w", nsid, err)
	}
	for _, a := range all {
		if has(a.Prefix.Addr().Unmap()) {
			return "a namespace with " + a.Prefix.Addr().String(), nil
		}
	}
	tap := ""
	err = rtnl.Steady(func() error {
		there := 0
		return k.Links(nsid, func(l *rtnl.Link) error {
			if l.IsOpenTap() {
				tap = "a namespace with a tap that is open, " + l.Name
			}
			if there++; there > mostLinks {
				return rtnl.ErrCutShort
			}
			return nil
		})
	})
	if rtnl.IsGone(err) || rtnl.IsVanishing(k, nsid, err) {
		return "", nil
	}
	if err != nil && tap == "" {
		return "", fmt.Errorf("list the links of network namespace %d: %w", nsid, err)
	}
	return tap, nil
}

// netns takes in whether the recorded namespace is at its path still, or which other is, and what a sandbox has in there.
func (m *Machine) netns(ctx context.Context, k *rtnl.Socket, at census.LastKnown, has func(netip.Addr) bool, r *census.Remains) error {
	if at.Netns == "" {
		return nil
	}
	fd, err := m.paths.Open(ctx, at.Netns)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	if fd < 0 {
		return nil
	}
	defer unix.Close(fd)
	if at.Inode == 0 {
		r.Netns = true // which may be another's, and says nothing
		return nil
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at network namespace %s: %w", at.Netns, err)
	}
	what := ""
	id, err := rtnl.IDOf(k, fd)
	if err != nil {
		err = fmt.Errorf("look up the id of network namespace %s: %w", at.Netns, err)
	} else {
		what, err = inside(k, id, has)
	}
	if st.Ino != at.Inode {
		if err != nil { // it may be another's, who could keep the release waiting
			what = unreadable
		}
		r.Other = &census.Other{Inode: st.Ino, Inside: what}
		return nil
	}
	r.Netns, r.Inside = true, what
	return err
}

// unreadable is what is inside a namespace of which that is not known.
const unreadable = "a namespace that could not be read"
