package index

import (
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ipamd/ipamd/ipam"
)

// A SandboxInterface is one interface of one sandbox: what a host interface name is leased to. It has
// one link on the host, from however many pools its addresses are.
type SandboxInterface struct{ UID, Interface string }

// InterfaceOf returns the interface that a name is leased to.
func InterfaceOf(n *ipam.HostName) SandboxInterface { return SandboxInterface{n.UID, n.Interface} }

// sandboxRow reports whether a row is of a sandbox and does not cool, as those of rowsBySandboxUID. While an
// interface has such a row, its host interface name stays leased: cooling means that the removal is confirmed.
func sandboxRow(l *ipam.Lease) bool { return l.UID != "" && l.State != ipam.Cooling }

// applyHostNames makes the change of a step in the tables.
func (x *tables) applyHostNames(s *Step) {
	if n := s.HostNameEnded; n != nil {
		delete(x.hostNameByName, n.Name)
		delete(x.hostNameByInterface, InterfaceOf(n))
	}
	if n := s.HostNameGiven; n != nil {
		x.hostNameByName[n.Name], x.hostNameByInterface[InterfaceOf(n)] = n, n
	}
}

// nameTries bounds how many names of a pattern are proposed for one request.
const nameTries = 100

// Names yields the host interface names that an interface of a sandbox may get. want is a name, or a
// pattern like veth%d. First come names of its own, for which own is true: the one that it has leased, and
// those of links that its leases record. Then come names that are leased to no interface; such a name
// must not be given while a link on the host has it. A pattern yields other names at each call, so that a
// name is used again as late as possible, and the cost does not depend on how many names are leased.
func (r *Reader) Names(uid, iface, want string) iter.Seq2[string, bool] {
	return func(yield func(name string, own bool) bool) {
		r.mu.RLock()
		var own []string
		if has := r.tables.hostNameByInterface[SandboxInterface{uid, iface}]; has != nil {
			own = append(own, has.Name)
		}
		for _, l := range r.tables.rowsBySandboxUID[uid] {
			if l.Interface == iface && ipam.FitsHostName(want, l.HostInterface) && r.tables.hostNameByName[l.HostInterface] == nil {
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
				name = prefix + strconv.FormatInt(r.proposed.Add(1)%room, 10)
			}
			r.mu.RLock()
			held := r.tables.hostNameByName[name] != nil
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
	if n := r.tables.hostNameByInterface[SandboxInterface{uid, iface}]; n != nil {
		return n.Name
	}
	return ""
}

// HostNames returns every name that is leased.
func (r *Reader) HostNames() []ipam.HostName {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]ipam.HostName, 0, len(r.tables.hostNameByName))
	for _, n := range r.tables.hostNameByName {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b ipam.HostName) int { return strings.Compare(a.Name, b.Name) })
	return out
}
