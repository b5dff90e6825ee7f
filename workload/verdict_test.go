package workload

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/ipam/ipamtest"
)

var (
	began   = ipamtest.Bound
	records = ipamtest.Records
)

func released(l *ipam.Lease)  { l.State = ipam.Releasing }
func cools(l *ipam.Lease)     { l.State = ipam.Cooling }
func eth1(l *ipam.Lease)      { l.Interface = "eth1" }
func otherPool(l *ipam.Lease) { l.PoolUID = "q" }

// of makes the record of a container.
func of(id, sandbox string, change ...func(*Record)) Record {
	r := Record{Container: ipam.Container{Namespace: "default", ID: id}, Sandbox: sandbox}
	for _, c := range change {
		c(&r)
	}
	return r
}

func leased(id string) func(*Record) { return func(r *Record) { r.LeaseID = id } }
func uid(u string) func(*Record)     { return func(r *Record) { r.UID = u } }
func made(at int) func(*Record)      { return func(r *Record) { r.Made = time.Unix(int64(at), 0) } }
func claims(a string) func(*Record) {
	return func(r *Record) { r.Addr = netip.MustParseAddr(a) }
}

// R8, F4, F17. What a container has to do with the lease L of sandbox a,
// incarnation a1, which began at 5 and records c1. With others, the book has more.
func TestBelongs(t *testing.T) {
	l := began("L", "a", "a1", 5, records("c1"))
	older := func(change ...func(*ipam.Lease)) *ipam.Lease { return began("O", "a", "a0", 1, change...) }
	next := func(change ...func(*ipam.Lease)) *ipam.Lease { return began("M", "a", "a2", 9, change...) }
	again := func(change ...func(*ipam.Lease)) *ipam.Lease { return began("M", "a", "a1", 9, change...) }
	twin := func(change ...func(*ipam.Lease)) *ipam.Lease { return began("T", "a", "a1", 5, change...) }
	stranger := began("S", "b", "b", 9)
	for name, tt := range map[string]struct {
		others []*ipam.Lease
		seen   Record
		want   Verdict
	}{
		"its lease label names the lease":                             {nil, of("c2", "", leased("L")), Ours},
		"and everything else names another":                           {[]*ipam.Lease{next(records("c2"))}, of("c2", "b", leased("L"), uid("b1")), Ours},
		"its lease label names an older incarnation's lease":          {[]*ipam.Lease{older()}, of("c2", "a", leased("O")), Another},
		"one that is being released":                                  {[]*ipam.Lease{older(released)}, of("c2", "a", leased("O")), Another},
		"one of the same moment":                                      {[]*ipam.Lease{began("M", "a", "a2", 5)}, of("c2", "a", leased("M")), Another},
		"one of another incarnation's other interface":                {[]*ipam.Lease{next(eth1)}, of("c2", "a", leased("M")), Another},
		"its lease label names the next incarnation's lease":          {[]*ipam.Lease{next()}, of("c2", "a", leased("M")), Another},
		"its lease label names another sandbox's lease":               {[]*ipam.Lease{stranger}, of("c2", "a", leased("S"), uid("a1")), Another},
		"the sandbox was given another lease since":                   {[]*ipam.Lease{again()}, of("c2", "a", leased("M"), uid("a1")), Another},
		"its lease label names a lease that has ended":                {[]*ipam.Lease{older(cools)}, of("c2", "a", leased("O")), Ours},
		"its lease label names none that the book has":                {nil, of("c2", "a", leased("X"), uid("a1")), Ours},
		"the same, without an owner":                                  {nil, of("c2", "", leased("X")), Unknown},
		"its label names the same incarnation's lease for eth1":       {[]*ipam.Lease{twin(eth1)}, of("c2", "a", leased("T")), Ours},
		"its label names the same incarnation's other family":         {[]*ipam.Lease{twin(otherPool)}, of("c2", "a", leased("T")), Ours},
		"the other family's lease of its next generation":             {[]*ipam.Lease{again(), began("N", "a", "a1", 9, otherPool)}, of("c2", "a", leased("N")), Another},
		"the same for eth1, by a container of another sandbox":        {[]*ipam.Lease{twin(eth1)}, of("c2", "b", leased("T")), Another},
		"recorded, without a label":                                   {nil, of("c1", ""), Ours},
		"recorded, and labelled as another sandbox":                   {nil, of("c1", "b"), Ours},
		"recorded, and its uid label is another incarnation's":        {nil, of("c1", "a", uid("a2")), Ours},
		"recorded under this id in another namespace":                 {nil, Record{Container: ipam.Container{Namespace: "other", ID: "c1"}}, Unknown},
		"recorded, and its label names a lease that has ended":        {nil, of("c1", "a", leased("X")), Ours},
		"recorded, and its label names the lease before this":         {[]*ipam.Lease{older(released)}, of("c1", "a", leased("O")), Ours},
		"recorded, and its label names a younger incarnation's lease": {[]*ipam.Lease{next()}, of("c1", "a", leased("M")), Another},
		"recorded, and its label names another sandbox's lease":       {[]*ipam.Lease{stranger}, of("c1", "b", leased("S")), Another},
		"recorded by this and the next, and made before the next":     {[]*ipam.Lease{next(records("c1"))}, of("c1", "a", made(7)), Ours},
		"recorded by this and the next, and made after":               {[]*ipam.Lease{next(records("c1"))}, of("c1", "a", made(10)), Another},
		"recorded by this and the next, not known when it was made":   {[]*ipam.Lease{next(records("c1"))}, of("c1", "a"), Another},
		"the same, and it carries this lease's label":                 {[]*ipam.Lease{next(records("c1"))}, of("c1", "a", leased("L")), Ours},
		"recorded by this and by the next that is released":           {[]*ipam.Lease{next(records("c1"), released)}, of("c1", "a"), Ours},
		"recorded by this and another interface's":                    {[]*ipam.Lease{again(records("c1"), eth1)}, of("c1", "a"), Ours},
		"the next incarnation records it":                             {[]*ipam.Lease{next(records("c2"))}, of("c2", "a"), Another},
		"the next one recorded it, and is released":                   {[]*ipam.Lease{next(records("c2"), released)}, of("c2", "a"), Another},
		"an older incarnation records it, and it was there before":    {[]*ipam.Lease{older(records("c2"))}, of("c2", "a", made(2)), Another},
		"an older incarnation records its id, made anew since":        {[]*ipam.Lease{older(records("c2"))}, of("c2", "a", made(6)), Ours},
		"an older incarnation records it, not known since when":       {[]*ipam.Lease{older(records("c2"))}, of("c2", "a"), Ours},
		"the same incarnation's lease for eth1 records it":            {[]*ipam.Lease{twin(records("c2"), eth1)}, of("c2", "a"), Ours},
		"by the sandbox's name":                                       {nil, of("c2", "a"), Ours},
		"by the sandbox's name, and the next incarnation lives":       {[]*ipam.Lease{next()}, of("c2", "a"), Ours},
		"by the incarnation":                                          {nil, of("c2", "a1"), Ours},
		"by the name and the uid label":                               {nil, of("c2", "a", uid("a1")), Ours},
		"the uid label is another incarnation's":                      {nil, of("c2", "a", uid("a2")), Another},
		"and so it is where that one has a lease":                     {[]*ipam.Lease{next()}, of("c2", "a", uid("a2")), Another},
		"by the incarnation, with another uid label":                  {nil, of("c2", "a1", uid("a2")), Another},
		"another sandbox's":                                           {nil, of("c2", "b"), Another},
		"another sandbox's with this uid":                             {nil, of("c2", "b", uid("a1")), Another},
		"of no sandbox":                                               {nil, of("c2", ""), Unknown},
	} {
		x := NewLeases(append(tt.others, l))
		if got := x.Judge(l, tt.seen); got != tt.want {
			t.Errorf("%s: it is %v, want %v", name, got, tt.want)
		}
		// What a room finds by the ties is what the predicate says.
		found := NewContainers(func(r Record) Record { return r }, []Record{tt.seen, of("c9", "z")}).Of(l, x)
		if want := tt.want == Ours; slices.Equal(found, []Record{tt.seen}) != want || !want && len(found) > 0 {
			t.Errorf("%s: found %+v", name, found)
		}
	}
	any := began("L", "a", "a", 5)
	for _, u := range []string{"", "a1", "a2"} {
		if got := NewLeases([]*ipam.Lease{any}).Judge(any, of("c2", "a", uid(u))); got != Ours {
			t.Errorf("a lease whose uid is the sandbox's name and a container with uid label %q: %v", u, got)
		}
	}
	if got := NewLeases([]*ipam.Lease{any, began("M", "a", "a2", 5)}).Judge(any, of("c2", "a", uid("a2"))); got != Another {
		t.Errorf("the same where the incarnation of that label has a lease: %v", got)
	}
}

// A container that lives with another lease or another address does not come for
// a lease that is not bound.
func TestAboutToUse(t *testing.T) {
	l := began("L", "a", "a1", 5, func(l *ipam.Lease) { l.Addr = netip.MustParseAddr("10.8.64.2") })
	x := NewLeases([]*ipam.Lease{l, began("T", "a", "a1", 5, eth1, records("c2"))})
	for name, tt := range map[string]struct {
		seen Record
		want bool
	}{
		"the sandbox's":                            {of("c1", "a"), true},
		"labelled with it":                         {of("c1", "", leased("L")), true},
		"claims its address":                       {of("c1", "a", claims("10.8.64.2")), true},
		"claims another address":                   {of("c1", "a", claims("10.8.64.3")), false},
		"labelled with the lease for eth1":         {of("c1", "a", leased("T")), false},
		"labelled with one that the book has lost": {of("c1", "a", leased("X")), false},
		"recorded by the lease for eth1":           {of("c2", "a"), false},
		"another incarnation's":                    {of("c1", "a", uid("a2")), false},
	} {
		if got := x.AboutToUse(l, tt.seen); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// A name that is used again for another link, or another namespace, is its successor's alone.
func TestPlumbing(t *testing.T) {
	plug := func(host, netns string) func(*ipam.Lease) {
		return func(l *ipam.Lease) { l.HostInterface, l.Netns = host, netns }
	}
	both := plug("veth1", "/run/netns/a")
	old := began("L", "a", "a", 5, both)
	old.Plug = ipam.Plug{Boot: "one", Index: 7, Inode: 70}
	for name, tt := range map[string]struct {
		other       *ipam.Lease // of a later link and a later namespace
		host, netns bool        // are still its own
	}{
		"a successor without plumbing": {began("M", "a", "a", 9), true, true},
		"one that has the port":        {began("M", "a", "a", 9, plug("veth1", "")), false, true},
		"and the namespace":            {began("M", "a", "a", 9, both), false, false},
		"an older one has it":          {began("M", "a", "a", 1, both), true, true},
		"after a reboot": {began("M", "a", "a", 1, plug("veth1", ""), func(l *ipam.Lease) {
			l.Created.BootID, l.Created.Wall = "two", time.Unix(6, 0)
		}), false, true},
		"a younger one that was released":   {began("M", "a", "a", 9, both, released), true, true},
		"another sandbox's":                 {began("M", "b", "b", 9, both), true, true},
		"the sandbox's other interface's":   {began("M", "a", "a", 9, both, eth1), true, true},
		"its lease of another pool, family": {began("M", "a", "a", 9, both, otherPool), true, true},
	} {
		tt.other.Plug = ipam.Plug{Boot: "one", Index: 8, Inode: 80}
		host, netns := NewLeases([]*ipam.Lease{old, tt.other}).Plumbing(old)
		if (host == "veth1") != tt.host || (netns == "/run/netns/a") != tt.netns {
			t.Errorf("%s: host %q, netns %q", name, host, netns)
		}
	}
}

// The successor inherits a name only where it is known to be of another link, or
// another namespace: the very same one is still the lease's own, and one that could
// not be looked up may be. A release of the older lease waits for as long as that is
// plugged, however long the successor keeps it.
func TestG4PlumbingOfTheSameLink(t *testing.T) {
	at := func(p ipam.Plug) func(*ipam.Lease) {
		return func(l *ipam.Lease) { l.HostInterface, l.Netns, l.Plug = "veth1", "/run/netns/a", p }
	}
	full := ipam.Plug{Boot: "one", Index: 7, Inode: 70}
	for name, tt := range map[string]struct {
		old, next   ipam.Plug
		host, netns bool // are still its own
	}{
		"the same link and namespace": {full, full, true, true},
		"another link":                {full, ipam.Plug{Boot: "one", Index: 8, Inode: 70}, false, true},
		"another namespace":           {full, ipam.Plug{Boot: "one", Index: 7, Inode: 71}, true, false},
		"of another boot":             {full, ipam.Plug{Boot: "two", Index: 7, Inode: 70}, false, false},
		"the older is not known":      {ipam.Plug{}, full, true, true},
		"the younger is not known":    {full, ipam.Plug{}, true, true},
		"nothing is known":            {ipam.Plug{}, ipam.Plug{}, true, true},
		"half is known":               {ipam.Plug{Boot: "one", Index: 7}, ipam.Plug{Boot: "one", Index: 8, Inode: 70}, false, true},
		"the other half of it":        {ipam.Plug{Boot: "one", Index: 7}, ipam.Plug{Boot: "two", Inode: 70}, true, true},
	} {
		old := began("L", "a", "a", 5, at(tt.old))
		host, netns := NewLeases([]*ipam.Lease{old, began("M", "a", "b", 9, at(tt.next))}).Plumbing(old)
		if (host == "veth1") != tt.host || (netns == "/run/netns/a") != tt.netns {
			t.Errorf("%s: host %q, netns %q", name, host, netns)
		}
	}
}

// However the book and the labels are, no container belongs to two incarnations
// by its lease label, and what belongs to a lease is found by its tie.
func TestNoContainerIsClaimedTwiceByItsLabel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	for range 20_000 {
		var rows []*ipam.Lease
		for i := range 1 + r.IntN(4) {
			rows = append(rows, began(fmt.Sprint("L", i), pick("a", "b"), pick("a", "u1", "u2"), r.IntN(3), func(l *ipam.Lease) {
				l.State = []ipam.State{ipam.Reserved, ipam.Bound, ipam.Paused, ipam.Releasing}[r.IntN(4)]
				l.Interface = pick("eth0", "eth1")
				for _, id := range []string{"c1", "c2"} {
					if r.IntN(3) == 0 {
						records(id)(l)
					}
				}
			}))
		}
		seen := of(pick("c1", "c2", "c3"), pick("", "a", "b", "u1"), leased(pick("", "L0", "L1", "L9")), uid(pick("", "u1", "u2")), made(r.IntN(3)))
		x, all := NewLeases(rows), NewContainers(func(r Record) Record { return r }, []Record{seen})
		for _, l := range rows {
			got := x.Judge(l, seen)
			if (len(all.Of(l, x)) == 1) != (got == Ours) {
				t.Fatalf("seed %d: %+v is %v to %+v, and is found %d times", seed, seen, got, l, len(all.Of(l, x)))
			}
			named := x.Lease(seen.LeaseID)
			if got == Ours && named != nil && named != l && (named.Sandbox != l.Sandbox || named.UID != l.UID) && !slices.Contains(l.Containers, seen.Container) {
				t.Fatalf("seed %d: %+v is taken for %+v's, and its label names %+v", seed, seen, l, named)
			}
		}
	}
}

// A row of another record may have no lease id. A container without a lease label does not
// name it.
func TestARowWithoutAnIDIsNotNamed(t *testing.T) {
	l := &ipam.Lease{ID: "1", State: ipam.Bound, Sandbox: "a", UID: "a", Interface: "eth0"}
	x := NewLeases([]*ipam.Lease{l, {State: ipam.Bound}})
	if got := x.Judge(l, Record{Sandbox: "a"}); got != Ours {
		t.Errorf("the container of its sandbox is %s", got)
	}
}
