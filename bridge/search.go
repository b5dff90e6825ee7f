package bridge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/bridge/rtnl"
)

// A guest decides how many links and addresses are in its namespace, how long they
// stay, and how long the kernel's answer about one is: mostLinks are listed, and each
// of the three steps of a search ends after linksWithin.
const (
	mostLinks   = 8192
	linksWithin = 100 * time.Millisecond

	// childrenEvery is the least time between two looks for stacked links in namespaces
	// that the kernel sends no news of, and childrenPause between two searches that
	// news asks for.
	childrenEvery = 2 * time.Second
	childrenPause = 100 * time.Millisecond

	// searchAllEvery is when the ports' namespaces are searched again though there was no
	// news of a stacked link in them.
	searchAllEvery = 5 * time.Minute
)

// loopback is the index of lo, which every namespace has.
const loopback = 1

const nestsScope = "nests"

// A search is for links that are stacked on the bridge, in every namespace that the
// kernel has an id for. What listens on the bridge and was not
// found is searched for in the namespaces that have a name or a process. It works on a
// socket of its own and without the lock.
//
// To list the links behind a thousand ports takes 65 ms, and the ports themselves 20 to 35. So the
// namespaces of ports, and the bridge's own, are searched once and then left out. They are searched
// again on news of a stacked link in them, when news was lost, when a MAC that is not known
// listens on the bridge, and after searchAllEvery. No address is missed meanwhile: of such a
// namespace all addresses are read, on any link. If the kernel's news of a stacked link is lost
// without a notice, the gap of that link (a virtual machine behind an ipvtap) is named that much later.
type search struct {
	k       *rtnl.Cached
	bridges int // so many there had been
	inside  bridgeNetns
	self    int // id by which the bridge's namespace knows itself
	bridge  *rtnl.Link
	parents map[int]string // the bridge and its ports, by index

	spaces  []*space        // that are searched, of those that ports lead to
	ended   []*nest         // that had ended before
	skipped map[int]bool    // those that are left out, by nsid
	known   map[string]bool // MACs of what was found there before

	nests  map[int]*nest
	partly map[int]error      // why not all links of a namespace were listed, by nsid
	hidden []net.HardwareAddr // that listen on the bridge, at no link that was found
}

// searchStacked searches for stacked links, and reads what they have. What could not
// be asked silences the witness at the next report.
func (b *Bridge) searchStacked(ctx context.Context) error {
	b.searching.Lock()
	defer b.searching.Unlock()
	var s *search
	err := b.locked(ctx, func() error {
		b.netns.stacked.again = false
		if b.isKnown() {
			s = b.newSearch()
		}
		return nil
	})
	if err != nil || s == nil {
		return err
	}
	return s.end(ctx, b, s.run(ctx))
}

// end takes in the outcome, also when ctx has ended.
func (s *search) end(ctx context.Context, b *Bridge, err error) error {
	return b.locked(context.WithoutCancel(ctx), func() error {
		if b.netns.bridges != s.bridges { // the bridge is another, or was looked at anew
			return nil
		}
		if err != nil {
			s.unmark()
			b.netns.stacked.home = false
			b.netns.searchAgain()
			if ctx.Err() != nil {
				return ctx.Err() // it says nothing about the kernel
			}
			b.netns.fail(nestsScope, fmt.Errorf("look for links on %s: %w", b.cfg.Name, err))
			return nil
		}
		b.netns.unfail(nestsScope)
		if b.device.isThere() {
			b.netns.setStacked(b.wire(), s)
		}
		return nil
	})
}

// newSearch notes what is to be searched now. News of a stacked link that comes from here on
// has its namespace searched once more.
func (b *Bridge) newSearch() *search {
	st, now := &b.netns.stacked, time.Now()
	st.strangers, st.early, st.over = make(map[int]bool), make(map[linkIn]bool), make(map[int]bool)
	st.earlyFull, st.missed = false, false
	s := &search{k: b.keep(unix.NETLINK_ROUTE), bridges: b.netns.bridges, ended: slices.Clone(st.ended), inside: b.inside, self: b.news.Self, bridge: b.device.link, parents: make(map[int]string),
		skipped: make(map[int]bool), known: make(map[string]bool), nests: make(map[int]*nest), partly: make(map[int]error)}
	w := b.wire()
	s.parents[w.link.Index] = w.parent(w.link.Index)
	for index := range w.ports {
		s.parents[index] = w.parent(index)
	}
	all := now.Sub(st.searched) >= searchAllEvery
	if all {
		st.searched = now
	}
	skip := func(id int) {
		s.skipped[id] = true
		if n := st.nests[id]; n != nil {
			maps.Copy(s.known, macs(map[int]*nest{id: n}))
		}
	}
	for id, sp := range b.netns.spaces {
		if sp.searched && !all {
			skip(id)
			continue
		}
		s.spaces, sp.searched = append(s.spaces, sp), true
	}
	if st.home && !all {
		skip(rtnl.NoNetns)
	}
	st.home = true
	return s
}

// unmark has all searched again that this search was for.
func (s *search) unmark() {
	for _, sp := range s.spaces {
		sp.searched = false
	}
}

func (s *search) run(ctx context.Context) error {
	defer s.k.Close()
	var ids []int
	err := s.k.Ask(ctx, func(r *rtnl.Socket) (err error) {
		ids, err = r.NetnsIDs()
		return err
	})
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	ids = slices.DeleteFunc(append(ids, rtnl.NoNetns), func(id int) bool { return s.skipped[id] || id == s.self })
	if err := s.look(ctx, ids); err != nil {
		return err
	}
	if len(s.hidden) > 0 && len(s.skipped) > 0 { // perhaps it is in one of these
		ids = slices.Collect(maps.Keys(s.skipped))
		clear(s.skipped)
		clear(s.known)
		if err := s.look(ctx, ids); err != nil {
			return err
		}
	}
	if len(s.hidden) > 0 {
		err := s.k.Ask(ctx, func(r *rtnl.Socket) error {
			ids = nameOthers(r)
			return nil
		})
		if err := errors.Join(err, s.look(ctx, ids)); err != nil {
			return err
		}
	}
	return s.k.Ask(ctx, func(r *rtnl.Socket) error {
		s.name(r)
		return nil
	})
}

// look searches some namespaces, and finds what listens on the bridge and is not found yet.
// Namespaces with a link that was down, and of whose MAC something listens, are searched
// once more: it is that link if it came up meanwhile, and another one if not.
func (s *search) look(ctx context.Context, ids []int) error {
	for range 2 {
		for _, id := range ids {
			if err := s.in(ctx, id); err != nil {
				return fmt.Errorf("list the links of nsid %d: %w", id, err)
			}
		}
		err := s.k.Ask(ctx, func(r *rtnl.Socket) (err error) {
			known := macs(s.nests)
			maps.Copy(known, s.known)
			s.hidden, err = r.Listeners(s.bridge.Index, known)
			return err
		})
		if err != nil {
			return fmt.Errorf("list which MACs %s receives: %w", s.bridge.Name, err)
		}
		ids = ids[:0:0]
		for id, n := range s.nests {
			if slices.ContainsFunc(n.links, func(l stackedLink) bool { return !l.Up() && s.listens(l.MAC) }) {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			break
		}
	}
	return nil
}

func (s *search) listens(mac net.HardwareAddr) bool {
	return slices.ContainsFunc(s.hidden, func(m net.HardwareAddr) bool { return bytes.Equal(m, mac) })
}

// findListeners has links on the bridge searched for when it takes frames up for other MACs
// than before: the kernel sends no news of a link that is made in a namespace without an id.
func (b *Bridge) findListeners(ctx context.Context) error {
	index := 0
	var known map[string]bool
	before := make(map[string]bool)
	err := b.locked(ctx, func() error {
		if !b.isKnown() {
			return nil
		}
		index, known = b.device.link.Index, macs(b.netns.stacked.nests)
		for _, m := range b.netns.stacked.listeners {
			before[m.String()] = true
		}
		return nil
	})
	if err != nil || known == nil {
		return nil
	}
	// The kernel counts what takes up more than the bridge's own frames. The answer waits for
	// others who change links of this machine, and no call waits for it.
	var bridge *rtnl.Link
	_ = b.outside.Ask(ctx, func(k *rtnl.Socket) error {
		if l, err := k.Link(rtnl.NoNetns, index); err == nil && l.Promiscuity > 0 {
			bridge = l
		}
		return nil
	})
	changed := len(before) > 0
	if bridge != nil {
		k, err := b.dial(ctx, unix.NETLINK_ROUTE)
		if err != nil {
			return nil
		}
		defer k.Close()
		hidden, err := k.Listeners(bridge.Index, known)
		changed = err != nil || len(hidden) != len(before) || slices.ContainsFunc(hidden, func(m net.HardwareAddr) bool { return !before[m.String()] })
	}
	if changed {
		return b.locked(ctx, func() error {
			b.netns.searchAgain()
			return nil
		})
	}
	return nil
}

// eachNetns opens the network namespaces at some paths, each once.
func eachNetns(paths []string, do func(path string, fd int)) {
	seen := make(map[uint64]bool)
	for _, path := range paths {
		inode, err := nspath.Inode(path)
		if err != nil || seen[inode] {
			continue // it went, or cannot be looked at
		}
		seen[inode] = true
		if fd, _, err := nspath.OpenNow(path); err == nil && fd >= 0 {
			do(path, fd)
			_ = unix.Close(fd)
		}
	}
}

// nameOthers gives an id to each namespace that has a name or a process and no
// id yet, and returns those ids: by an id only can it be read from here.
func nameOthers(k *rtnl.Socket) (ids []int) {
	named, _ := filepath.Glob(nspath.Named + "/*") // the patterns are right
	processes, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	eachNetns(append(named, processes...), func(_ string, fd int) {
		if _, err := k.NetnsID(fd); errors.Is(err, ErrNoNetnsID) && k.AssignID(fd) == nil {
			if id, err := k.NetnsID(fd); err == nil {
				ids = append(ids, id)
			}
		}
	})
	return ids
}

// name finds the names of the namespaces that have stacked links.
func (s *search) name(k *rtnl.Socket) {
	if len(s.nests) == 0 {
		return
	}
	named, _ := filepath.Glob(nspath.Named + "/*") // without names it shows the bare id
	eachNetns(named, func(path string, fd int) {
		if id, err := k.NetnsID(fd); err == nil && s.nests[id] != nil {
			s.nests[id].file = filepath.Base(path)
		}
	})
}

// in adds the stacked links in one namespace. One that goes away meanwhile, or
// that may not be read, has none; the latter's still listen on the bridge. What
// cannot be asked of one namespace says nothing about the others.
func (s *search) in(ctx context.Context, id int) error {
	all, err := s.linksOn(ctx, id)
	switch {
	case err == nil:
	case id == rtnl.NoNetns || ctx.Err() != nil:
		return err
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return nil
	default:
		gone := false
		if errors.Is(err, unix.EINVAL) {
			_ = s.k.Ask(ctx, func(r *rtnl.Socket) error {
				gone = rtnl.IsDead(r, id)
				return nil
			})
		}
		if gone {
			return nil
		}
		s.partly[id] = err
	}
	if len(all) == 0 {
		return nil
	}
	home := rtnl.NoNetns
	if id != rtnl.NoNetns {
		if s.self == rtnl.Unassigned { // the list that was just made may have given it one
			_ = s.k.Ask(ctx, func(r *rtnl.Socket) (err error) {
				s.self, err = r.NetnsID(int(s.inside.ns))
				return err
			})
		}
		home = s.self
	}
	n := &nest{id: id}
	for _, l := range all {
		if l.Behind == home {
			n.links = append(n.links, stackedLink{l, s.parents[l.Peer]})
		}
	}
	if len(n.links) > 0 && (id == rtnl.NoNetns || id != home) {
		slices.SortFunc(n.links, func(a, b stackedLink) int { return cmp.Compare(a.Index, b.Index) })
		s.nests[id] = n
	}
	return nil
}

// linksOn lists the links in a namespace that are stacked on others. Where it may lack
// some the error says why, and the list has all that could be found.
//
// No list of another namespace's links is complete because it ended well: it ends,
// without an error, before the first link that is longer than the kernel's buffer, and
// root in there makes any link so long by alternative names. So each link that has an
// address, of which the list is not cut like this, and that is not among the links is
// looked up by its index. The addresses come first: a link that is made meanwhile is
// not missing, and one that goes is not there when it is looked up.
func (s *search) linksOn(ctx context.Context, id int) ([]*rtnl.Link, error) {
	var unsure error
	addressed := make(map[int]bool)
	if id != rtnl.NoNetns {
		unsure = s.repeat(ctx, id, func(r *rtnl.Socket, until time.Time) error { return r.Addressed(id, until, addressed) })
		if unsure != nil && !errors.Is(unsure, rtnl.ErrInterrupted) && !errors.Is(unsure, rtnl.ErrCutShort) {
			return nil, unsure
		}
	}
	listed := make(map[int]bool)
	var last, found map[int]*rtnl.Link // of the last list, of all lists
	found = make(map[int]*rtnl.Link)
	note := func(l *rtnl.Link) {
		listed[l.Index] = true
		if stackedKinds[l.Kind] && s.parents[l.Peer] != "" {
			last[l.Index], found[l.Index] = l, l
		}
	}
	err := s.repeat(ctx, id, func(r *rtnl.Socket, _ time.Time) error {
		last = make(map[int]*rtnl.Link)
		there := 0
		return r.Links(id, func(l *rtnl.Link) error {
			note(l)
			if there++; there > mostLinks && id != rtnl.NoNetns {
				return rtnl.ErrCutShort
			}
			return nil
		})
	})
	if err == nil {
		found = last
	}
	if id != rtnl.NoNetns {
		for index := range listed {
			delete(addressed, index)
		}
		short := !listed[loopback]
		err = errors.Join(unsure, err, s.lookUp(ctx, id, slices.Sorted(maps.Keys(addressed)), func(l *rtnl.Link) {
			short = true
			note(l)
		}))
		if short && err == nil {
			err = errEndsEarly
		}
	}
	return slices.Collect(maps.Values(found)), err
}

// repeat makes a list of a namespace, again while it is interrupted: so many times,
// and of one that guests may be root in for so long.
func (s *search) repeat(ctx context.Context, id int, list func(r *rtnl.Socket, until time.Time) error) error {
	until := time.Now().Add(linksWithin)
	for try := 1; ; try++ {
		err := s.k.Ask(ctx, func(r *rtnl.Socket) error { return list(r, until) })
		if !errors.Is(err, rtnl.ErrInterrupted) || try == rtnl.ListTries || id != rtnl.NoNetns && time.Now().After(until) {
			return err
		}
	}
}

// lookUp looks links up one by one, and gives each those that are there.
func (s *search) lookUp(ctx context.Context, id int, indices []int, each func(*rtnl.Link)) error {
	until := time.Now().Add(linksWithin)
	return s.k.Ask(ctx, func(r *rtnl.Socket) (all error) {
		for _, index := range indices {
			if time.Now().After(until) {
				return rtnl.ErrCutShort
			}
			switch l, err := r.Link(id, index); {
			case err == nil:
				each(l)
			case !rtnl.IsGone(err):
				all = err
			}
		}
		return all
	})
}
