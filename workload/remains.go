package workload

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// LastKnown is where a lease's sandbox was last known to be, by the numbers and names that are its own.
// Links and namespaces of another boot are gone, and what has their names was made since; of a
// lease that records no boot the name is all that is known.
func (x *Leases) LastKnown(l *ipam.Lease, boot string) (at census.LastKnown) {
	if l.Plug.OfBoot(boot) {
		at.Link, at.Behind, at.Netns, at.Inode = l.Plug.Index, l.Plug.Behind, l.Netns, l.Plug.Inode
	}
	if l.Plug.Boot == "" || l.Plug.OfBoot(boot) {
		at.Name, _ = x.Plumbing(l)
	}
	return at
}

// A Trace is what is left of one lease's sandbox, as the kernel has it: where it was last known to
// be, and what is there now.
type Trace struct {
	Lease   *ipam.Lease
	At      census.LastKnown
	Remains census.Remains
	Leases  *Leases // all of them: a link may be of another sandbox by now
}

// Keeps says in a sentence why the lease may not end, though no port of a watched bridge had the name that it
// records, and no witness sees its address: its link is a port, or leads to the sandbox, or its
// namespace, or one that was made anew at its path, has the sandbox in it. "" is that nothing keeps it.
func (t Trace) Keeps() string {
	if h := t.Remains.Behind; h != nil {
		whose := t.whose(h)
		switch {
		case h.Bridge == "" && h.Inside != "":
			return unplugged(h)
		case h.Bridge == "", !h.Leads, whose == Anothers:
		case whose == Unclear && t.saidToEnd():
		default:
			return h.Name + ", which it was last seen behind, is a port"
		}
	}
	switch h := t.link(); {
	case h == nil:
	case h.Bridge == "" && h.Inside != "":
		return unplugged(h)
	case h.Bridge == "":
	case !h.Watched:
		return fmt.Sprintf("%s is a port of %s, which is not looked after", h.Name, h.Bridge)
	case h.Name != t.At.Name:
		return h.Name + ", which has another name since it was recorded, is a port"
	default: // it came a moment ago
		return fmt.Sprintf("%s is a port of %s", h.Name, h.Bridge)
	}
	if t.Remains.Inside != "" {
		return fmt.Sprintf("%s, behind no port of a bridge, is %s", t.At.Netns, t.Remains.Inside)
	}
	if t.anew() {
		return fmt.Sprintf("%s is another namespace since it was recorded, and is %s", t.At.Netns, t.Remains.Other.Inside)
	}
	return ""
}

// anew reports that another namespace at the path of the lease's own may be the sandbox's, made anew without a bind: a sandbox
// is in there, and no lease of another records it. Of a lease that was released it is not: a path alone is used again.
func (t Trace) anew() bool {
	o := t.Remains.Other
	return o != nil && o.Inside != "" && !t.saidToEnd() && !t.anothersNetns(o.Inode)
}

// saidToEnd reports that the lease's owner released it: it says then that its sandbox has ended.
func (t Trace) saidToEnd() bool { return !t.Lease.State.Open() && !t.Lease.Former() }

// anothersNetns reports that a lease of another sandbox records the namespace of an inode: nothing in there is of this one.
func (t Trace) anothersNetns(inode uint64) bool {
	for _, o := range t.Leases.byID {
		if o.UID != t.Lease.UID && MayUse(o.State) && o.Plug.Inode == inode && o.Plug.OfBoot(t.Lease.Plug.Boot) {
			return true
		}
	}
	return false
}

// Left says in a sentence why a quarantine may not end, where no end of its sandbox was confirmed: what
// keeps a lease, or its link, wherever that is. A link of its name that is another sandbox's by now, as a tap that is passed on, keeps
// a lease and no quarantine. "" is that nothing is left.
func (t Trace) Left() string {
	for _, h := range []**census.HostLink{&t.Remains.Link, &t.Remains.Named} {
		if *h != nil && t.whose(*h) == Anothers {
			*h = nil
		}
	}
	says := t.Keeps()
	if h := t.link(); says == "" && h != nil {
		says = h.Name + ", its link, is there"
	}
	return says
}

func unplugged(h *census.HostLink) string {
	return fmt.Sprintf("%s is a port of no bridge, and leads to %s", h.Name, h.Inside)
}

// Unplugged says in a sentence that the sandbox's link is there, and is a port of no bridge: the
// sandbox lives, as far as can be known. "" is that it is not so.
func (t Trace) Unplugged() string {
	h := t.link()
	if b := t.Remains.Behind; h == nil && b != nil && t.whose(b) != Anothers {
		h = b
	}
	if h == nil || h.Bridge != "" {
		return ""
	}
	return h.Name + " is there, and is a port of no bridge"
}

// Ended reports that nothing is left: neither the sandbox's link nor its namespace. Where the lease
// does not record both it is false: that the one is not there is no proof, for a link that was
// moved to another namespace is not on the host either. Of a link that came after its bind, or not at all, the
// name is known.
func (t Trace) Ended() bool {
	known := (t.At.Link != 0 || t.At.Behind != 0 || t.At.Name != "") && t.At.Netns != ""
	b := t.Remains.Behind
	return known && t.link() == nil && (b == nil || t.whose(b) == Anothers) && !t.Remains.Netns && !t.anew()
}

// link is the one that the sandbox names: with the recorded index, unless that has another name and may be
// of another by now; else with the recorded name.
func (t Trace) link() *census.HostLink {
	if h := t.Remains.Link; h != nil && (h.Name == t.At.Name || t.whose(h) == Own) {
		return h
	}
	return t.Remains.Named
}

// whose is whose a link is by what leases record and the kernel shows. It compares the MAC at the link's far end: that of a tap is
// not shown, and a guest may have changed its own, so that what is recorded counts, too. Of a lease without a MAC it
// is not clear whose the link is where nothing of the sandbox is in the namespace that it leads to, and its own
// is not at its path.
func (t Trace) whose(h *census.HostLink) Owner {
	shown := t.Lease.MAC != "" && !h.Tap
	if shown && (h.Hidden || h.MAC == t.Lease.MAC) {
		return Own
	}
	others := slices.DeleteFunc(slices.Collect(maps.Values(t.Leases.byID)), func(o *ipam.Lease) bool { return o.Plug.Link() != h.Index })
	is := RecordedBy(others, t.Lease.Plug.Boot).Whose(t.Lease, h.Index, h.Name)
	if is == Own && (shown || h.Leads && !h.Hidden && h.Inside == "" && t.At.Netns != "" && t.At.Inode != 0 && !t.Remains.Netns) {
		return Unclear
	}
	return is
}
