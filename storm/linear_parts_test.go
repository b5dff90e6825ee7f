package storm_test

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ipamd/ipamd/api"
)

// parts divides a history by address and by sandbox. A sandbox of the trials
// has one interface, and there is one pool of one family.
func parts(calls []call) map[string][]porcupine.Operation {
	out := make(map[string][]porcupine.Operation)
	add := func(key string, c call) {
		out[key] = append(out[key], porcupine.Operation{ClientId: c.Client, Input: c, Call: int64(c.Asked), Return: int64(c.Answered)})
	}
	all := origins(calls)
	for _, o := range all {
		if o.maker != nil && o.maker.made {
			add(o.addr.String(), *o.maker)
			add(o.uid, *o.maker)
		}
	}
	ends := successors(all)
	for _, c := range calls {
		switch {
		case c.Verb == listingAll, c.Verb == allocating && c.lost(): // see sights, origins
		case c.Refused == api.PoolExhausted:
			add(c.UID, c)
		case c.Refused != "": // any call may be refused so at any time
		case c.lost():
			// Once its lease has one after it, it does nothing: so it need not be
			// thought of as pending any longer.
			for key, end := range map[string]moment{c.Addr.String(): ends.at[c.Lease], c.UID: ends.of[c.Lease]} {
				if c.Asked < end {
					add(key, c)
					ops := out[key]
					ops[len(ops)-1].Return = int64(end)
				}
			}
		default:
			add(c.Addr.String(), c)
			add(c.UID, c)
		}
	}
	sights(calls, out, add)
	return out
}

// An origin is how one lease came to be known.
type origin struct {
	lease, uid string
	addr       netip.Addr
	shown      moment // the first answer that shows it, a list's or its owner's
	fresh      *call  // the answer that made it; nil for none
	maker      *call  // it, or what stands for the call without an answer; nil: none can have made it
	kindKnown  bool   // an answer to its owner says whether it was an early reuse
	early      bool
}

// origins are the leases that any answer shows, in the order in which they were
// shown. One that no answer made was made by a call without one: by one of its
// sandbox that was asked before it was shown, and each of those made one lease
// at the most. While another lease was its sandbox's, or none, it was not there.
func origins(calls []call) []*origin {
	all := make(map[string]*origin)
	show := func(lease, uid string, addr netip.Addr, at moment) *origin {
		o := all[lease]
		if o == nil {
			o = &origin{lease: lease, uid: uid, addr: addr, shown: at}
			all[lease] = o
		}
		o.shown = min(o.shown, at)
		return o
	}
	lost, other := make(map[string][]call), make(map[string][]call)
	for _, c := range calls {
		switch {
		case c.lists():
			for addr, o := range c.Open {
				show(o.Lease, o.UID, addr, c.Answered)
			}
		case c.Verb != allocating:
		case c.lost():
			lost[c.UID] = append(lost[c.UID], c)
		case c.Refused == api.PoolExhausted:
			other[c.UID] = append(other[c.UID], c)
		case c.Refused == "":
			other[c.UID] = append(other[c.UID], c)
			o := show(c.Lease, c.UID, c.Addr, c.Answered)
			o.kindKnown, o.early = true, o.early || c.Early
			if !c.Existing {
				o.fresh, o.maker = &c, &c
			}
		}
	}
	sorted := slices.SortedFunc(maps.Values(all), func(a, b *origin) int { return cmp.Compare(a.shown, b.shown) })
	for uid := range lost {
		slices.SortFunc(lost[uid], func(a, b call) int { return cmp.Compare(a.over(), b.over()) })
	}
	for _, o := range sorted {
		if o.fresh == nil {
			since := moment(0)
			for _, c := range other[o.uid] {
				if c.Lease != o.lease && c.Answered <= o.shown {
					since = max(since, c.Asked)
				}
			}
			able := func(c call) bool { return c.Asked < o.shown && c.over() > since }
			if i := slices.IndexFunc(lost[o.uid], able); i >= 0 {
				o.maker = &call{Client: lost[o.uid][i].Client, Verb: allocating, UID: o.uid, Asked: o.shown, Answered: o.shown,
					Lease: o.lease, Addr: o.addr, Early: !o.kindKnown || o.early, made: true}
				for _, c := range lost[o.uid] {
					if able(c) {
						o.maker.Asked = min(o.maker.Asked, max(c.Asked, since))
					}
				}
				lost[o.uid] = slices.Delete(lost[o.uid], i, i+1)
			}
		}
	}
	return sorted
}

func (c call) over() moment {
	if c.Over == 0 {
		return never
	}
	return c.Over
}

// following says when the next lease was shown, by lease: the next at its
// address, and the next of its sandbox.
type following struct{ at, of map[string]moment }

func successors(all []*origin) following {
	out := following{make(map[string]moment), make(map[string]moment)}
	at, of := make(map[netip.Addr]moment), make(map[string]moment)
	for _, o := range slices.Backward(all) {
		out.at[o.lease], out.of[o.lease] = never, never
		if next, ok := at[o.addr]; ok {
			out.at[o.lease] = next
		}
		if next, ok := of[o.uid]; ok {
			out.of[o.lease] = next
		}
		at[o.addr], of[o.uid] = o.shown, o.shown
	}
	return out
}

// sights adds what the lists say of each address and of each sandbox. Left out
// is a list that says what the one before it said, while nothing of the part
// began or ended from that one's beginning to this one's end: both can be put at
// one moment. Before the first, all is free.
func sights(calls []call, out map[string][]porcupine.Operation, add func(string, call)) {
	var lists []call
	keys := make(map[string]netip.Addr) // no address: it is a sandbox
	for _, c := range calls {
		if c.lists() {
			lists = append(lists, c)
		}
		if c.UID != "" {
			keys[c.UID] = netip.Addr{}
		}
		if c.Addr.IsValid() {
			keys[c.Addr.String()] = c.Addr
		}
		for addr, o := range c.Open {
			keys[o.UID], keys[addr.String()] = netip.Addr{}, addr
		}
	}
	slices.SortFunc(lists, func(a, b call) int { return cmp.Compare(a.Asked, b.Asked) })
	edges, last := make(map[string][]int64), make(map[string]call)
	for key := range keys {
		for _, op := range out[key] {
			edges[key] = append(edges[key], op.Call, op.Return)
		}
		slices.Sort(edges[key])
	}
	for _, l := range lists {
		seen := make(map[string]call)
		for addr, o := range l.Open {
			c := call{Client: l.Client, Verb: l.Verb, Asked: l.Asked, Answered: l.Answered, Addr: addr, UID: o.UID, Lease: o.Lease, Bound: o.Bound}
			seen[addr.String()] = c
			_, c.twice = seen[o.UID]
			seen[o.UID] = c
		}
		for key, addr := range keys {
			c, ok := seen[key]
			if !ok {
				c = call{Client: l.Client, Verb: l.Verb, Asked: l.Asked, Answered: l.Answered, Addr: addr}
			}
			was := last[key]
			i, _ := slices.BinarySearch(edges[key], int64(was.Asked))
			still := i == len(edges[key]) || edges[key][i] > int64(c.Answered)
			if !still || c.twice || c.Lease != was.Lease || c.Bound != was.Bound {
				add(key, c)
				last[key] = c
			}
		}
	}
}

// crooked lists the addresses and sandboxes whose calls no order explains, and
// those that were not judged in time, in the order of their names.
func crooked(calls []call, r rest, patience time.Duration) (illegal, unknown []string) {
	model := r.model()
	for key, ops := range parts(calls) {
		switch porcupine.CheckOperationsTimeout(model, ops, patience) {
		case porcupine.Illegal:
			illegal = append(illegal, key)
		case porcupine.Unknown:
			unknown = append(unknown, key)
		}
	}
	slices.Sort(illegal)
	slices.Sort(unknown)
	return illegal, unknown
}
