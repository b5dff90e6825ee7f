package storm_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/api"
)

// A holding is all that is known of one lease.
type holding struct {
	*origin
	asked moment // from when on it can have been made
	from  moment // the first answer that shows it
	to    moment // the first release was asked for; never
	bound bool
}

// holdings are the leases that any answer shows, in the order in which they were
// shown.
func holdings(calls []call) (out []*holding) {
	all := make(map[string]*holding)
	for _, o := range origins(calls) {
		t := &holding{origin: o, asked: o.shown, from: o.shown, to: never}
		if o.maker != nil {
			t.asked = o.maker.Asked
		}
		all[o.lease] = t
		out = append(out, t)
	}
	for _, c := range calls {
		for _, o := range c.Open {
			all[o.Lease].bound = all[o.Lease].bound || o.Bound
		}
		if t := all[c.Lease]; t != nil {
			t.bound = t.bound || c.Bound
			switch {
			case c.Verb == binding && !c.Gone && c.done():
				t.bound = true
			case c.Verb == releasing && !c.Gone && c.Refused == "":
				t.to = min(t.to, c.Asked)
			}
		}
	}
	return out
}

// blame names what is wrong with a history in words that say where to look.
// What porcupine refuses and blame does not name is wrong all the same.
func blame(calls []call, r rest) (faults []string) {
	found := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	all := holdings(calls)
	at, of := make(map[netip.Addr][]*holding), make(map[string][]*holding)
	for _, t := range all {
		at[t.addr] = append(at[t.addr], t)
		of[t.uid] = append(of[t.uid], t)
	}
	for addr, ts := range at {
		before, let := "", moment(0) // whose rest is due, and since when
		for i, t := range ts {
			least := r.of(t.early || !t.kindKnown)
			cooled := t.from - let
			if before != "" && before != t.uid && cooled < least {
				found("reused too soon: %s went from %s to %s at %v, %v after its release was asked for, early %v",
					addr, before, t.uid, t.from, cooled, t.early)
			}
			if t.to != never && (t.bound || before != "" && cooled < r.cooldown) {
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
	byLease := make(map[string]*holding)
	for _, t := range all {
		byLease[t.lease] = t
	}
	for _, c := range calls {
		switch t := byLease[c.Lease]; {
		case c.Gone && t != nil && t.to > c.Answered:
			found("missing: %s holds %s by lease %s from %v to %s, and a %s at %v finds no lease",
				t.uid, t.addr, t.lease, t.from, until(t.to), c.Verb, c.Asked)
		case c.Refused == api.PoolExhausted:
			for _, t := range of[c.UID] {
				if t.from <= c.Asked && c.Answered <= t.to {
					found("refused: %s holds %s by lease %s from %v to %s, asks again at %v and gets %s",
						t.uid, t.addr, t.lease, t.from, until(t.to), c.Asked, c.Refused)
				}
			}
		case c.lists():
			for _, t := range all {
				if t.from <= c.Asked && c.Answered <= t.to && c.Open[t.addr].Lease != t.lease {
					found("missing: %s holds %s by lease %s from %v to %s, and the list of %v has %q there",
						t.uid, t.addr, t.lease, t.from, until(t.to), c.Asked, c.Open[t.addr].Lease)
				}
			}
			has := make(map[string]netip.Addr)
			for addr, o := range c.Open {
				if other, ok := has[o.UID]; ok {
					found("two leases: the list of %v has %s at %s by lease %s, and at %s by lease %s",
						c.Asked, o.UID, addr, o.Lease, other, c.Open[other].Lease)
				}
				has[o.UID] = addr
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
