package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// A child is a link that is stacked on the bridge or on a port of it: a macvlan,
// macvtap, ipvlan, ipvtap or vlan. It is no port, and frames from the bridge do not reach it, so
// neither the ports nor a probe show who is there; its namespace does.
type child struct {
	link   *rtnl.Link
	parent string
}

// stacked are the kinds of links that are on another one, with frames of its own.
var stacked = map[string]bool{"macvlan": true, "macvtap": true, "ipvlan": true, "ipvtap": true, "vlan": true}

// opaque are those of a virtual machine: its addresses are on no link here.
func (c child) opaque() bool { return c.link.Kind == "macvtap" || c.link.Kind == "ipvtap" }

func (c child) where() string {
	return fmt.Sprintf("%s is a %s on %s, and no port", c.link.Name, c.link.Kind, c.parent)
}

// A nest is a namespace that has children, and that no port may lead to.
type nest struct {
	id       int // nsid; rtnl.NoNetns is the bridge's own
	file     string
	children []child // by index
	// ended: the kernel takes it down, and its id may be another's by now. What was
	// seen there stands until the next search; nothing new is read or received for it.
	ended bool
	*inside
}

func (n *nest) scope() string { return fmt.Sprintf("nest %d", n.id) }

// childrenEvery is the least time between two looks for children in namespaces
// that the kernel sends no news of.
const childrenEvery = 2 * time.Second

// A brood is what a search for children found.
type brood struct {
	nests  map[int]*nest
	partly map[int]error      // why not all links of a namespace were listed, by nsid
	hidden []net.HardwareAddr // that listen on the bridge, and nobody knows where
}

// macs are those of the children.
func (f *brood) macs() map[string]bool {
	all := make(map[string]bool)
	for _, n := range f.nests {
		for _, c := range n.children {
			all[c.link.MAC.String()] = true
		}
	}
	return all
}

// findChildren searches every namespace that the kernel has an id for, on a
// socket of its own and without the lock. What listens on the bridge and was not
// found is searched for in the namespaces that have a name or a process.
func (b *Bridge) findChildren(ctx context.Context, bridge *rtnl.Link, parents map[int]string) (*brood, error) {
	k := rtnl.NewKept(func(ctx context.Context) (*rtnl.Socket, error) { return b.dial(ctx, unix.NETLINK_ROUTE) })
	defer k.Close()
	var ids []int
	err := k.Ask(ctx, func(r *rtnl.Socket) (err error) {
		ids, err = r.NetnsIDs()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	found := &brood{nests: make(map[int]*nest), partly: make(map[int]error)}
	look := func(ids ...int) error {
		for _, id := range ids {
			if err := childrenIn(ctx, k, id, func() int { return b.self(ctx, k) }, parents, found); err != nil {
				return fmt.Errorf("list the links of nsid %d: %w", id, err)
			}
		}
		return nil
	}
	listen := func() error {
		err := k.Ask(ctx, func(r *rtnl.Socket) (err error) {
			found.hidden, err = r.Listeners(bridge.Index, found.macs())
			return err
		})
		if err != nil {
			return fmt.Errorf("list which MACs %s receives: %w", b.cfg.Name, err)
		}
		return nil
	}
	if err := look(append(ids, rtnl.NoNetns)...); err != nil {
		return nil, err
	}
	if err := listen(); err != nil {
		return nil, err
	}
	if len(found.hidden) > 0 {
		var others []int
		err := k.Ask(ctx, func(r *rtnl.Socket) error {
			others = b.nameOthers(r)
			return nil
		})
		if err := errors.Join(err, look(others...)); err != nil {
			return nil, err
		}
		if err := listen(); err != nil {
			return nil, err
		}
	}
	return found, k.Ask(ctx, func(r *rtnl.Socket) error {
		found.name(r)
		return nil
	})
}

// self is the id by which the bridge's namespace knows itself; Unassigned when it
// has none, and then no link elsewhere was shown as one that leads here.
func (b *Bridge) self(ctx context.Context, k *rtnl.Kept) int {
	id := rtnl.Unassigned
	_ = k.Ask(ctx, func(r *rtnl.Socket) error {
		return b.place.do(func() error {
			fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if has, err := r.NetnsID(fd); err == nil {
				id = has
			}
			return nil
		})
	})
	return id
}

// nameOthers gives an id to each namespace that has a name or a process and no
// id yet, and returns those ids: by an id only can it be read from here.
func (b *Bridge) nameOthers(k *rtnl.Socket) (ids []int) {
	named, _ := filepath.Glob(filepath.Join(spaceNames, "*")) // the patterns are right
	processes, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	seen := make(map[uint64]bool)
	for _, path := range append(named, processes...) {
		inode, err := inodeAt(path)
		if err != nil || seen[inode] {
			continue // it went, or is not ours to look at
		}
		seen[inode] = true
		fd, _, err := openNetns(path)
		if err != nil || fd < 0 {
			continue
		}
		if _, err := k.NetnsID(fd); errors.Is(err, ErrNoNetnsID) && k.AssignID(fd) == nil {
			if id, err := k.NetnsID(fd); err == nil {
				ids = append(ids, id)
			}
		}
		_ = unix.Close(fd)
	}
	return ids
}

// name finds the names of the namespaces that have children.
func (f *brood) name(k *rtnl.Socket) {
	if len(f.nests) == 0 {
		return
	}
	files, _ := os.ReadDir(spaceNames) // without names it shows the bare id
	for _, file := range files {
		fd, _, err := openNetns(filepath.Join(spaceNames, file.Name()))
		if err != nil || fd < 0 {
			continue
		}
		if id, err := k.NetnsID(fd); err == nil && f.nests[id] != nil {
			f.nests[id].file = file.Name()
		}
		_ = unix.Close(fd)
	}
}

// searchChildren searches for children, and reads what they have. What could not
// be asked silences the witness at the next tell.
func (b *Bridge) searchChildren(ctx context.Context) error {
	var bridge *rtnl.Link
	parents := make(map[int]string)
	err := b.locked(ctx, func() error {
		b.childrenAgain, b.strangers = false, make(map[int]bool)
		b.netns.unfail(nestsScope)
		if b.isThere() && !b.lost {
			bridge = b.link
			parents[bridge.Index] = bridge.Name
			for index, p := range b.ports {
				parents[index] = p.link.Name
			}
		}
		return nil
	})
	if err != nil || bridge == nil {
		return err
	}
	found, err := b.findChildren(ctx, bridge, parents)
	return b.locked(ctx, func() error {
		if err != nil {
			b.netns.fail(nestsScope, fmt.Errorf("look for links on %s: %w", b.cfg.Name, err))
			return nil
		}
		if b.isThere() && b.link.Index == bridge.Index {
			b.setChildren(found)
		}
		return nil
	})
}

const nestsScope = "nests"

// childrenPause is the least time between two searches that news asks for.
const childrenPause = 100 * time.Millisecond

// missesChildren reports that links on the bridge are to be searched for: the
// kernel told of one, or the bridge takes frames up for other MACs than before.
// The kernel sends no news of a link that is made in a namespace without an id.
func (b *Bridge) missesChildren(ctx context.Context, now time.Time, t *timetable) bool {
	var bridge *rtnl.Link
	var known *brood
	before := make(map[string]bool)
	again := false
	err := b.locked(ctx, func() error {
		again = b.childrenAgain
		if again || now.Before(t.children) || b.lost || !b.isThere() {
			return nil
		}
		t.children = now.Add(childrenEvery)
		known = &brood{nests: b.nests}
		for _, m := range b.listeners {
			before[m.String()] = true
		}
		// The kernel counts what takes up more than the bridge's own frames.
		if l, err := b.kernel.Link(rtnl.NoNetns, b.link.Index); err == nil && l.Promiscuity > 0 {
			bridge = l
		}
		return nil
	})
	if t.children.IsZero() || now.After(t.children) {
		t.children = now.Add(childrenEvery)
	}
	if again && now.Sub(t.searched) < childrenPause {
		t.children = t.searched.Add(childrenPause)
		return false
	}
	if err != nil || again || known == nil {
		return again
	}
	if bridge == nil {
		return len(before) > 0
	}
	k, err := b.dial(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}
	defer k.Close()
	hidden, err := k.Listeners(bridge.Index, known.macs())
	changed := err != nil || len(hidden) != len(before)
	for _, m := range hidden {
		changed = changed || !before[m.String()]
	}
	return changed
}

// setChildren makes a search's outcome what is known.
func (b *Bridge) setChildren(found *brood) {
	for id, n := range b.nests {
		next := found.nests[id]
		if found.partly[id] != nil && !n.ended { // what was found before may be there still
			next = n.with(next)
			found.nests[id] = next
		}
		if next != nil && !n.ended {
			next.inside = n.inside
		} else {
			b.dropInside(interior{inside: n.inside, scope: n.scope()})
		}
	}
	b.nests = found.nests
	for id, n := range b.nests {
		n.stock = b.stock
		b.readNest(id)
	}
	b.setHidden(found)
}

// with returns the nest with the children that another search found, nil for none.
func (n *nest) with(found *nest) *nest {
	if found == nil {
		return n
	}
	for _, c := range n.children {
		if !slices.ContainsFunc(found.children, func(o child) bool { return o.link.Index == c.link.Index }) {
			found.children = append(found.children, c)
		}
	}
	return found
}

// readNest lists the addresses of a namespace that has children. What a port leads
// to is read as that, and the host's own by the host witness.
func (b *Bridge) readNest(id int) {
	delete(b.nestsAgain, id)
	n := b.nests[id]
	if n == nil || n.ended || id == rtnl.NoNetns {
		return
	}
	if b.spaces[id] != nil {
		b.dropInside(interior{inside: n.inside, scope: n.scope()})
		n.inside = &inside{stock: b.stock}
		return
	}
	if b.leaveCrowd(id) {
		return
	}
	got, err := b.listInside(id, n.inside)
	if b.isVanishing(id, err) {
		b.childrenAgain = true // what was seen stands until the search tells
		return
	}
	if err != nil {
		b.nestsAgain[id] = true
		b.netns.fail(n.scope(), fmt.Errorf("list the addresses of nsid %d: %w", id, err))
		return
	}
	b.takeInside(id, got)
}

// sighting is one address of the namespace, at the child that has it, or at the
// first.
func (n *nest) sighting(a rtnl.Address, bridge string) census.Sighting {
	c := n.children[0]
	for _, other := range n.children {
		if other.link.Index == a.Index {
			c = other
		}
	}
	s := census.Sighting{Addr: a.Prefix.Addr(), Bridge: bridge, Port: c.link.Name, Netns: "nsid:" + strconv.Itoa(n.id), MAC: c.link.MAC.String(), Note: c.where()}
	if n.file != "" {
		s.Netns += " (" + n.file + ")"
	}
	return s
}

// setHidden notes what cannot be read of the children.
func (b *Bridge) setHidden(found *brood) {
	before := b.hidden
	b.listeners, b.partly = found.hidden, found.partly
	b.hidden = make(map[Gap]time.Time)
	add := func(link, detail, next string) {
		g := Gap{Kind: LinkHidden, Link: link, Detail: detail, Next: next}
		if b.hidden[g] = before[g]; before[g].IsZero() {
			b.hidden[g] = time.Now()
		}
	}
	for _, m := range found.hidden {
		add(m.String(), fmt.Sprintf("a link with MAC %s is stacked on %s, in a namespace that cannot be found; its addresses are seen by nobody", m, b.cfg.Name),
			"find it (ip -d link, in each namespace) and remove it, or exclude its addresses from the pool")
	}
	for id := range found.partly {
		if b.spaces[id] == nil { // else its addresses are read, on whatever link
			add(fmt.Sprintf("nsid:%d", id), fmt.Sprintf("the links in namespace nsid:%d cannot all be listed; one that is stacked on %s may be missing, and its addresses", id, b.cfg.Name),
				"find what makes so many links, or so fast, in that namespace, and stop it")
		}
	}
	for _, n := range found.nests {
		for _, c := range n.children {
			if c.opaque() {
				add(c.link.Name, fmt.Sprintf("%s; the addresses of the virtual machine behind it are seen by nobody", c.where()),
					"give it a tap that is a port of "+b.cfg.Name+", or exclude its addresses from the pool")
			}
		}
	}
	for id := range b.strangers { // a call took in the news while this was searched for
		b.missHidden(id)
	}
	b.gapsMoved = true
}

// receiveChild notes news that may be about a child, and is of no port's namespace.
func (b *Bridge) receiveChild(nsid, index int, body []byte) {
	if b.spaces[nsid] != nil {
		return // its addresses are read, on whatever link
	}
	if n := b.nests[nsid]; n != nil {
		b.nestsAgain[nsid] = true
		if slices.ContainsFunc(n.children, func(c child) bool { return c.link.Index == index }) {
			b.missChild()
		}
	}
	if l, err := rtnl.ParseLink(body); err == nil && stacked[l.Kind] {
		b.missChild()
	}
}

// missChild has Run search for links on the bridge: nobody waits for that.
func (b *Bridge) missChild() {
	if !b.childrenAgain {
		b.childrenAgain = true
		b.alarm.ring()
	}
}

// missHidden does so for an address that came in a namespace: the link that has it may be
// one of those that were not listed.
func (b *Bridge) missHidden(nsid int) {
	if b.partly[nsid] != nil {
		b.missChild()
	}
}
