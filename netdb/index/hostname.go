package index

import (
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ipamd/ipamd/ipam"
)

// A Link is what a host interface name is leased to. An interface has one link, whatever pools its
// addresses are of.
type Link struct{ UID, Interface string }

// LinkOf returns who has a name.
func LinkOf(n *ipam.HostName) Link { return Link{n.UID, n.Interface} }

// holdsName reports whether a row keeps its interface's name: every one but that of a
// removal that is confirmed.
func holdsName(l *ipam.Lease) bool { return l.UID != "" && l.State != ipam.Cooling }

// setNames makes the tables agree with a step.
func (x *tables) setNames(s *Step) {
	if n := s.Unnamed; n != nil {
		delete(x.hostNames, n.Name)
		delete(x.hostNameOf, LinkOf(n))
	}
	if n := s.Named; n != nil {
		x.hostNames[n.Name], x.hostNameOf[LinkOf(n)] = n, n
	}
}

// nameTries bounds how many names of a pattern are proposed for one request.
const nameTries = 100

// Names yields the names that an interface of a sandbox may have for what it wants, a name
// or a pattern like veth%d: the one that it has; those of links that its leases record;
// else what is leased to no other. own says of a name that its link is known to be the
// interface's own; no other name may be given while a link of the host has it. Those of a
// pattern are other ones each time, so that a name is used again late, and the cost does not
// depend on how many there are.
func (r *Reader) Names(uid, iface, want string) iter.Seq2[string, bool] {
	return func(yield func(name string, own bool) bool) {
		r.mu.RLock()
		var own []string
		if has := r.is.hostNameOf[Link{uid, iface}]; has != nil {
			own = append(own, has.Name)
		}
		for _, l := range r.is.byUID[uid] {
			if l.Interface == iface && ipam.FitsHostName(want, l.HostInterface) && r.is.hostNames[l.HostInterface] == nil {
				own = append(own, l.HostInterface)
			}
		}
		r.mu.RUnlock()
		for _, name := range own {
			if !yield(name, true) {
				return
			}
		}
		prefix, pattern := ipam.CutHostNamePattern(want)
		room := int64(math.Pow10(min(ipam.MaxInterface-len(prefix), 9)))
		for range nameTries {
			name := want
			if pattern {
				name = prefix + strconv.FormatInt(r.named.Add(1)%room, 10)
			}
			r.mu.RLock()
			held := r.is.hostNames[name] != nil
			r.mu.RUnlock()
			if !held && !yield(name, false) || !pattern {
				return
			}
		}
	}
}

// HostName returns the host interface name that is leased to an interface of a sandbox,
// "" for none.
func (r *Reader) HostName(uid, iface string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if n := r.is.hostNameOf[Link{uid, iface}]; n != nil {
		return n.Name
	}
	return ""
}

// HostNames returns every name that is leased.
func (r *Reader) HostNames() []ipam.HostName {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]ipam.HostName, 0, len(r.is.hostNames))
	for _, n := range r.is.hostNames {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b ipam.HostName) int { return strings.Compare(a.Name, b.Name) })
	return out
}
