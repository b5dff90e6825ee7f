package orphans

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/workload"
)

// A group is all that is there under one owner label.
type group struct {
	sandbox    string
	containers []workload.Record // labelled so, or with one of its leases
	others     []workload.Record // that its leases record, and that no label gives to it; they are never ended
	leases     []*ipam.Lease     // open ones and those that are being released
	dispute    string            // why it cannot be distinguished from another one; "" when it can
}

// groups gathers containers and leases by the containers' owner label, in
// the order of the labels. A lease that belongs to two of them, or to one and
// to a sandbox of another name, makes them disputed: what cannot be distinguished
// cannot be removed apart.
func groups(leases []*ipam.Lease, list []workload.Record) []*group {
	byName := make(map[string]*group)
	all, x := workload.NewContainers(func(r workload.Record) workload.Record { return r }, list), workload.NewLeases(leases)
	for _, w := range list {
		if w.Sandbox == "" {
			continue
		}
		if byName[w.Sandbox] == nil {
			byName[w.Sandbox] = &group{sandbox: w.Sandbox}
		}
		byName[w.Sandbox].containers = append(byName[w.Sandbox].containers, w)
	}
	for _, l := range leases {
		if !l.State.Open() && l.State != ipam.Releasing {
			continue
		}
		join(l, all.Of(l, x), byName)
	}
	out := slices.Collect(maps.Values(byName))
	slices.SortFunc(out, func(a, b *group) int { return strings.Compare(a.sandbox, b.sandbox) })
	for _, g := range out {
		for _, of := range [][]workload.Record{g.containers, g.others} {
			slices.SortFunc(of, func(a, b workload.Record) int { return a.Container.Compare(b.Container) })
		}
	}
	return out
}

// join gives a lease, and those of its own containers that are labelled with it, to
// its group. A container without a label that a lease records is not taken: a
// client records what it likes, and what is in a group is ended with it.
func join(l *ipam.Lease, own []workload.Record, byName map[string]*group) {
	names := []string{l.Sandbox, l.UID}
	strange := false
	for _, w := range own {
		if w.Sandbox != "" {
			names = append(names, w.Sandbox)
			strange = strange || w.Sandbox != l.Sandbox && w.Sandbox != l.UID
		}
	}
	slices.Sort(names)
	var of []*group
	for _, n := range slices.Compact(names) {
		if g := byName[n]; g != nil {
			of = append(of, g)
		}
	}
	for _, g := range of {
		if strange || len(of) > 1 {
			g.dispute = fmt.Sprintf("lease %s of sandbox %q (%s) has containers that are labelled as another's", l.ID, l.Sandbox, l.Addr)
		}
		g.leases = append(g.leases, l)
		for _, w := range own {
			to := &g.others
			if w.LeaseID == l.ID {
				to = &g.containers
			}
			if w.Sandbox == "" && !slices.Contains(*to, w) {
				*to = append(*to, w)
			}
		}
	}
}

// age returns how long all of a group has been there: the age of its
// youngest part. A container that has no date has none.
func (g *group) age(now ipam.Stamp) time.Duration {
	age := time.Duration(math.MaxInt64)
	for _, w := range slices.Concat(g.containers, g.others) {
		if w.Made.IsZero() {
			return 0
		}
		age = min(age, now.Wall.Sub(w.Made))
	}
	for _, l := range g.leases {
		age = min(age, now.Since(l.Created))
	}
	return age
}

// same reports that nothing of a group changed: another container, another
// lease or a move of one may mean that it lives again.
func (g *group) same(o *group) bool {
	return slices.Equal(g.containers, o.containers) && slices.Equal(g.others, o.others) && g.dispute == o.dispute &&
		slices.EqualFunc(g.leases, o.leases, func(a, b *ipam.Lease) bool { return a.ID == b.ID && a.Rev == b.Rev })
}

// A suspect is a group that the owner's list does not vouch for. It is an
// orphan only by the owner's own word: the list's, or a look-up's.
type suspect struct {
	*group
	listed bool       // the list itself says that it is gone
	since  ipam.Stamp // when the list was first seen not to vouch for it
}

// suspects holds groups against the owner's list. before is what the last
// call returned as since; it is what makes the grace begin when a sandbox is
// first missed.
//
// The list may lag: that it lacks a sandbox proves nothing (the incident), nor
// does it before everything of the sandbox is as old as grace and has been
// missed for as long. A sandbox that the list has in any other state than gone
// is vouched for, and its grace begins anew.
func suspects(all []*group, list []watchdog.Owned, before map[string]ipam.Stamp, grace time.Duration, now ipam.Stamp) (found []suspect, since map[string]ipam.Stamp) {
	gone := make(map[string]bool, len(list)) // listed, and as gone alone
	for _, o := range list {
		was, twice := gone[o.Sandbox]
		gone[o.Sandbox] = o.Verdict == watchdog.Gone && (was || !twice)
	}
	since = make(map[string]ipam.Stamp)
	for _, g := range all {
		dead, listed := gone[g.sandbox]
		if listed && !dead {
			continue
		}
		first, missed := before[g.sandbox]
		if !missed {
			first = now
		}
		since[g.sandbox] = first
		if now.Since(first) >= grace && g.age(now) >= grace {
			found = append(found, suspect{g, dead, first})
		}
	}
	return found, since
}
