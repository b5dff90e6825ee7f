package workload

import (
	"slices"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// MayUse reports whether a lease in this state may be used on a port. What is released
// may be used until its end is confirmed.
func MayUse(s ipam.State) bool {
	return s == ipam.Bound || s == ipam.Paused || s == ipam.Releasing
}

// ByName reports whether a lease's port is found by its name: it records no link of this boot.
func ByName(l *ipam.Lease, boot string) bool {
	return l.HostInterface != "" && (l.Plug.Index == 0 || !l.Plug.OfBoot(boot))
}

// Recorded is what leases record of ports in one boot: links, and names of which no link is recorded.
type Recorded struct {
	boot  string
	links map[int][]*ipam.Lease
	names map[string][]string // the sandboxes
}

// RecordedBy is that of all leases that may be used on a port.
func RecordedBy(leases []*ipam.Lease, boot string) Recorded {
	out := Recorded{boot: boot, links: map[int][]*ipam.Lease{}, names: map[string][]string{}}
	for _, l := range leases {
		switch link := l.Plug.Link(); {
		case !MayUse(l.State):
		case link != 0 && l.Plug.OfBoot(boot):
			out.links[link] = append(out.links[link], l)
		case ByName(l, boot) && boundIn(l, boot):
			out.names[l.HostInterface] = append(out.names[l.HostInterface], l.UID)
		}
	}
	return out
}

// boundIn reports whether what a lease records is of that boot, as far as is known.
func boundIn(l *ipam.Lease, boot string) bool {
	return l.Plug.OfBoot(boot) || ipam.SameBoot(l.Created.BootID, boot) || l.State == ipam.Bound && ipam.SameBoot(l.Since.BootID, boot)
}

// Has reports whether a lease has the port of that index and name, so that it may be used there: the link that it
// records, while that is of this boot and not [Anothers]; else the one of its name that is its [Own], unless only
// other sandboxes were bound to the name in this boot.
func (r Recorded) Has(l *ipam.Lease, index int, name string) bool {
	switch whose := r.Whose(l, index, name); {
	case l.HostInterface == "":
		return false
	case ByName(l, r.boot):
		bound := r.names[name]
		return name == l.HostInterface && whose == Own && (boundIn(l, r.boot) || len(bound) == 0 || slices.Contains(bound, l.UID))
	default:
		return index == l.Plug.Index && whose != Anothers
	}
}

// Last is when the link of an index was found last, see [ipam.Plug]; 0: not known.
func (r Recorded) Last(index int) (last time.Duration) {
	for _, o := range r.links[index] {
		last = max(last, o.Plug.At)
	}
	return last
}

// An Owner is whose a link is, as one lease's sandbox sees it. The zero value is no proof: a link that no
// lease records is Own to each.
type Owner int

const (
	Own      Owner = iota // its own, as far as is known: no other sandbox's lease says that it is its own
	Unclear               // its own or another's
	Anothers              // another sandbox's
)

// Whose says whose the link of an index is, which has that name now, by what leases record. Names, indexes and inodes are used
// again. Of two leases that record a link the later has it; one that was only seen behind it takes it from none that
// names it as it is named, or is in the same namespace. A link that the lease does not record is that of
// another's which does and names it so, and unclear where any other's does.
//
// What is unclear keeps a lease from its end, and gives it no more rules: the ends go by [Trace.Keeps], which also
// asks the kernel, the rules by [Recorded.Has].
func (r Recorded) Whose(l *ipam.Lease, index int, name string) (is Owner) {
	own, known := l, l.Plug.Link() == index && l.Plug.OfBoot(r.boot)
	for _, o := range r.links[index] {
		if o.UID == l.UID && (!known || later(o, own, name)) { // both families of an interface may record it, and one later
			own, known = o, true
		}
	}
	for _, o := range r.links[index] {
		inside := o.Plug.Inode != 0 && o.Plug.Inode == l.Plug.Inode && o.Netns == l.Netns && (o.HostInterface == "" || l.HostInterface == "")
		switch {
		case o.UID == l.UID || inside:
		case known && later(o, own, name), !known && o.HostInterface == name:
			return Anothers
		case !known:
			is = Unclear
		}
	}
	return is
}

// later reports whether a recorded a link after b did, which has that name now. Of two of which that is not known it is the
// one that names the link as it is named.
func later(a, b *ipam.Lease, name string) bool {
	if a.Plug.At == b.Plug.At {
		return a.HostInterface == name && b.HostInterface != name
	}
	return a.Plug.At > b.Plug.At && (a.HostInterface != "" || b.HostInterface != name)
}
