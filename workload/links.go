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

// Recorded is what leases record of ports in one boot, each with the sandboxes that do: links, and
// names of which no link is recorded.
type Recorded struct {
	boot  string
	links map[int][]linkClaim
	names map[string][]string
}

// A linkClaim is that a sandbox's lease records a link.
type linkClaim struct {
	uid  string
	name string        // of the link, as it was then
	at   time.Duration // when that was, see [ipam.Plug]
}

// RecordedBy is that of all leases that may be used on a port.
func RecordedBy(leases []*ipam.Lease, boot string) Recorded {
	out := Recorded{boot: boot, links: map[int][]linkClaim{}, names: map[string][]string{}}
	for _, l := range leases {
		switch {
		case !MayUse(l.State):
		case l.Plug.Index != 0 && l.Plug.OfBoot(boot):
			out.links[l.Plug.Index] = append(out.links[l.Plug.Index], linkClaim{l.UID, l.HostInterface, l.Plug.At})
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

// Has reports whether a lease has the port of that index and name. It has the link that it records,
// where that is of this boot and no other sandbox's lease records it since: the kernel gives an index
// again, and a runtime a link. Else it has the one of its name, unless only other
// sandboxes record the link that has it now, or were bound to the name in this boot.
func (r Recorded) Has(l *ipam.Lease, index int, name string) bool {
	switch others := r.links[index]; {
	case l.HostInterface == "":
		return false
	case ByName(l, r.boot):
		return name == l.HostInterface && !only(others, l.UID) && (boundIn(l, r.boot) || !only(r.named(name), l.UID))
	default:
		return index == l.Plug.Index && !r.since(l, name)
	}
}

// Last is when the link of an index was found last, see [ipam.Plug]; 0: not known.
func (r Recorded) Last(index int) (last time.Duration) {
	for _, c := range r.links[index] {
		last = max(last, c.at)
	}
	return last
}

func (r Recorded) named(name string) (out []linkClaim) {
	for _, uid := range r.names[name] {
		out = append(out, linkClaim{uid: uid})
	}
	return out
}

// only reports whether others than a sandbox make claims, and it makes none.
func only(all []linkClaim, uid string) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(c linkClaim) bool { return c.uid == uid })
}

// since reports whether another sandbox's lease records the link of a lease since, which has that
// name now. Of two of which that is not known it is the one that names the link as it is named.
func (r Recorded) since(l *ipam.Lease, name string) bool {
	own := linkClaim{l.UID, l.HostInterface, l.Plug.At}
	for _, c := range r.links[l.Plug.Index] { // both families of an interface may record it, and one later
		if c.uid == l.UID && c.after(own, name) {
			own = c
		}
	}
	return slices.ContainsFunc(r.links[l.Plug.Index], func(c linkClaim) bool { return c.uid != l.UID && c.after(own, name) })
}

func (c linkClaim) after(o linkClaim, name string) bool {
	return c.at > o.at || c.at == o.at && c.name == name && o.name != name
}
