package storm_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// A tenure is all that is known of one lease.
type tenure struct {
	lease, uid string
	addr       netip.Addr
	asked      moment // the first call that was answered with it
	from       moment // the first answer
	to         moment // the first release was asked for; never
	bound      bool
	fresh      bool // an answer made it, not a call without one
	early      bool
}

// tenures are the leases that clients were told of, in the order in which they
// were told.
func tenures(calls []call) []*tenure {
	all := make(map[string]*tenure)
	for _, c := range calls {
		if c.Verb == allocating && c.Answered != never {
			t := all[c.Lease]
			if t == nil {
				t = &tenure{lease: c.Lease, uid: c.UID, addr: c.Addr, asked: c.Asked, from: never, to: never}
				all[c.Lease] = t
			}
			if c.Answered < t.from {
				t.from, t.asked = c.Answered, c.Asked
			}
			if !c.Existing {
				t.fresh, t.early = true, c.Early
			}
		}
	}
	for _, c := range calls {
		if t := all[c.Lease]; t != nil {
			switch {
			case c.Verb == binding && !c.Gone:
				t.bound = true
			case c.Verb == releasing && !c.Gone:
				t.to = min(t.to, c.Asked)
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *tenure) int { return cmp.Compare(a.from, b.from) })
}

// blame names what is wrong with a history in words that say where to look.
// What porcupine refuses and blame does not name is wrong all the same.
func blame(calls []call, r rest) (faults []string) {
	found := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	all := tenures(calls)
	at, of := make(map[netip.Addr][]*tenure), make(map[string][]*tenure)
	for _, t := range all {
		at[t.addr] = append(at[t.addr], t)
		of[t.uid] = append(of[t.uid], t)
	}
	for addr, ts := range at {
		before, let := "", moment(0) // whose rest is due, and since when
		for i, t := range ts {
			least := r.least
			if t.fresh {
				least = r.of(t.early)
			}
			rested := t.from - let
			if before != "" && before != t.uid && rested < least {
				found("reused too soon: %s went from %s to %s at %v, %v after its release was asked for, early %v",
					addr, before, t.uid, t.from, rested, t.early)
			}
			if t.bound || t.fresh && before != "" && rested < r.cooldown {
				before, let = t.uid, t.to
			} else {
				before = ""
			}
			for _, next := range ts[i+1:] {
				if next.from < t.to {
					found("two owners: %s is %s's by lease %s from %v to %s, and %s's by lease %s from %v",
						addr, t.uid, t.lease, t.from, until(t.to), next.uid, next.lease, next.from)
				}
			}
		}
	}
	for uid, ts := range of {
		for i, t := range ts {
			for _, next := range ts[i+1:] {
				if next.from < t.to && next.asked > t.from {
					found("another lease: %s holds %s by lease %s from %v to %s, asks again at %v and gets %s by lease %s",
						uid, t.addr, t.lease, t.from, until(t.to), next.asked, next.addr, next.lease)
				}
			}
		}
	}
	byLease := make(map[string]*tenure)
	for _, t := range all {
		byLease[t.lease] = t
	}
	for _, c := range calls {
		switch t := byLease[c.Lease]; {
		case c.Gone && t != nil && t.to > c.Answered:
			found("missing: %s holds %s by lease %s from %v to %s, and a %s at %v finds no lease",
				t.uid, t.addr, t.lease, t.from, until(t.to), c.Verb, c.Asked)
		case c.Verb == listingAll:
			for _, t := range all {
				if t.from <= c.Asked && c.Answered <= t.to && c.Open[t.addr].Lease != t.lease {
					found("missing: %s holds %s by lease %s from %v to %s, and the list of %v has %q there",
						t.uid, t.addr, t.lease, t.from, until(t.to), c.Asked, c.Open[t.addr].Lease)
				}
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// kinds counts faults by how their words begin, and keeps a few of each kind.
func kinds(faults []string) (out []string) {
	const enough = 3
	count := make(map[string]int)
	for _, f := range faults {
		kind, _, _ := strings.Cut(f, ":")
		if count[kind]++; count[kind] <= enough {
			out = append(out, f)
		}
	}
	return append([]string{fmt.Sprintf("of each kind: %v", count)}, out...)
}
