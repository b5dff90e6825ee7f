package enforce

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/nft"
	"github.com/ipamd/ipamd/workload"
)

// A desired is what the rules are to be: the grants of leases, the ports and bridges that these
// are of, and how often each element of a set is asked for by them. It is memory alone, and is
// used under the keeper's lock.
type desired struct {
	policy Policy

	grants    map[string][]Grant // by lease
	revs      map[string]int64   // of the leases that grants were made from, or for which none had to be
	read      map[string]uint64  // which reading of the ports that was by; see readings
	withdrawn map[string]int64   // leases whose end is being recorded, and their revisions
	ports     map[int]Port
	fresh     map[int]bool     // ports that were in no set, and may have had the bridge learn a lease's MAC
	came      map[int]bool     // ports that got other grants since their counters were last read. refusals shares this map and empties it.
	users     map[int][]string // the leases that have grants of each port
	gateways  []netip.Addr     // of the pools
	bridges   []Bridge
	own       map[string][]netip.Addr // of bridges, as ownAddrs has it
	want      tally                   // of all of these
	before    map[member]int          // what want had of each, before the change that is being made
}

func newDesired(p Policy) desired {
	return desired{policy: p, grants: map[string][]Grant{}, revs: map[string]int64{}, read: map[string]uint64{}, withdrawn: map[string]int64{},
		ports: map[int]Port{}, fresh: map[int]bool{}, came: map[int]bool{}, users: map[int][]string{}, want: tally{}, before: map[member]int{}}
}

// set takes in what a lease is, and where by a reading of the ports. What memory has of a
// later revision, or of the same by a later reading, stays: Run compares beside binds, and
// would take away the rules of one that is answered. What a busy kernel does not say in time takes
// no port from a lease: its sandbox may live behind it.
func (d *desired) set(l *ipam.Lease, at place, reading uint64) {
	if had := d.revs[l.ID]; had > l.Rev || had == l.Rev && d.read[l.ID] > reading {
		return
	}
	if rev, off := d.withdrawn[l.ID]; off {
		if rev >= l.Rev {
			return
		}
		delete(d.withdrawn, l.ID)
	}
	if at.err != nil && len(at.ports) == 0 {
		at.ports = slices.DeleteFunc(portsOf(d.grants[l.ID]), func(i int) bool { _, is := d.ports[i]; return !is })
	}
	next := Grants(l, at.ports)
	if !slices.Equal(next, d.grants[l.ID]) {
		d.drop(l.ID)
		for _, g := range next {
			d.count(g, 1)
			if g.Port != 0 {
				d.came[g.Port] = true
			}
		}
	}
	if len(next) > 0 {
		d.grants[l.ID] = next
	}
	if len(next) > 0 || at.err == nil { // by an earlier reading a port that has gone is there
		d.revs[l.ID], d.read[l.ID] = l.Rev, reading
	}
}

func (d *desired) drop(id string) {
	for _, g := range d.grants[id] {
		d.count(g, -1)
	}
	delete(d.grants, id)
	delete(d.revs, id)
	delete(d.read, id)
}

// count adds a grant, or takes it away.
func (d *desired) count(g Grant, n int) {
	for _, m := range d.policy.members(g) {
		d.add(m, n)
	}
	if g.Port == 0 {
		return
	}
	before := len(d.users[g.Port])
	if n > 0 {
		d.users[g.Port] = append(d.users[g.Port], g.Lease)
	} else if i := slices.Index(d.users[g.Port], g.Lease); i >= 0 {
		d.users[g.Port] = slices.Delete(d.users[g.Port], i, i+1)
	}
	if p, is := d.ports[g.Port]; is && (before == 0) != (len(d.users[g.Port]) == 0) {
		d.addUnleased(p, -n)
	}
	if len(d.users[g.Port]) == 0 {
		delete(d.users, g.Port)
	}
}

func (d *desired) add(m member, n int) {
	if _, known := d.before[m]; !known {
		d.before[m] = d.want[m]
	}
	if d.want[m] += n; d.want[m] == 0 {
		delete(d.want, m)
	}
}

func (d *desired) addUnleased(p Port, n int) {
	for _, m := range d.policy.unleased(p) {
		d.add(m, n)
	}
}

// takePort takes in a port, or that it has another name.
func (d *desired) takePort(p Port) {
	was, known := d.ports[p.Index]
	d.ports[p.Index] = p
	d.addOwn(p, 1)
	if known {
		d.addOwn(was, -1)
	} else {
		d.fresh[p.Index] = true
	}
	if was == p || len(d.users[p.Index]) > 0 {
		return
	}
	d.addUnleased(p, 1)
	if known {
		d.addUnleased(was, -1)
	}
}

// takePorts takes in which ports there are.
func (d *desired) takePorts(ports []Port) {
	now := make(map[int]Port, len(d.ports))
	for _, p := range ports {
		now[p.Index] = p
		d.takePort(p)
	}
	for i, p := range d.ports {
		if _, still := now[i]; still {
			continue
		}
		delete(d.fresh, i)
		d.addOwn(p, -1)
		if len(d.users[i]) == 0 {
			d.addUnleased(p, -1)
		}
	}
	d.ports = now
	// Whether a port that has grants counts as unleased without them follows from ports:
	// it is looked at when the last one goes.
}

// compare takes in all leases as they are now; rev is their revision, and reading that of the
// ports by which at was found.
func (d *desired) compare(leases []*ipam.Lease, rev int64, at map[string]place, reading uint64) {
	there := make(map[string]bool, len(leases))
	for _, l := range leases {
		if l.ID != "" && workload.MayUse(l.State) {
			there[l.ID] = true
			d.set(l, at[l.ID], reading)
		}
	}
	for id, was := range d.revs {
		if !there[id] && was <= rev {
			d.drop(id)
		}
	}
	for id, was := range d.withdrawn {
		if !there[id] && was <= rev {
			delete(d.withdrawn, id)
		}
	}
}

// takeBridges takes in what no port may use: the gateways of the pools, and what the bridges are.
func (d *desired) takeBridges(pools []*ipam.Pool, bridges []Bridge) {
	var gateways []netip.Addr
	for _, p := range pools {
		if p.Gateway.IsValid() {
			gateways = append(gateways, p.Gateway)
		}
	}
	same := func(a, b Bridge) bool { return a.Name == b.Name && a.MAC == b.MAC && slices.Equal(a.Addrs, b.Addrs) }
	if slices.Equal(gateways, d.gateways) && slices.EqualFunc(bridges, d.bridges, same) {
		return
	}
	count := func(gateways []netip.Addr, bridges []Bridge, n int) {
		all, at := ownAddrs(bridges)
		for _, a := range slices.Concat(gateways, all) {
			d.add(gateway(a), n)
		}
		for _, b := range bridges {
			for _, m := range bridgeMAC(b) {
				d.add(m, n)
			}
		}
		if d.own = at; len(at) > 0 {
			for _, p := range d.ports {
				d.addOwn(p, n)
			}
		}
	}
	count(d.gateways, d.bridges, -1)
	count(gateways, bridges, 1)
	d.gateways, d.bridges = gateways, bridges
}

func (d *desired) addOwn(p Port, n int) {
	for _, m := range own(p.Index, d.own[p.Bridge]) {
		d.add(m, n)
	}
}

// world is what the rules are made from, as memory has it.
func (d *desired) world(epoch string, rev int64) World {
	w := World{Epoch: epoch, Revision: rev, Ports: slices.Collect(maps.Values(d.ports)), Gateways: d.gateways, Bridges: d.bridges}
	for _, g := range d.grants {
		w.Grants = append(w.Grants, g...)
	}
	sortGrants(w.Grants)
	return w
}

// edits are what the change that is being made does to each set.
func (d *desired) edits() []nft.Edit {
	by := map[string]*nft.Edit{}
	for m, was := range d.before {
		if is := d.want[m]; (was > 0) != (is > 0) {
			e := by[m.set]
			if e == nil {
				e = &nft.Edit{Set: sets[m.set]}
				by[m.set] = e
			}
			if is > 0 {
				e.Add = append(e.Add, m.Element)
			} else {
				e.Del = append(e.Del, m.Element)
			}
		}
	}
	out := make([]nft.Edit, 0, len(by)+1)
	for _, e := range by {
		out = append(out, *e)
	}
	return out
}
