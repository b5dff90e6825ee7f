package rebuild

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/salvage"
	"github.com/ipamd/ipamd/workload"
)

// An Outcome is what becomes of one lease of a file that is taken in, or of the present
// book.
type Outcome struct {
	Address string     `json:"address"` // of a delegated prefix with its length
	Sandbox string     `json:"sandbox,omitempty"`
	LeaseID string     `json:"lease_id,omitempty"`
	From    string     `json:"from"`    // backup, file or book: the present one
	Was     ipam.State `json:"was"`     // there
	Outcome string     `json:"outcome"` // kept, back, cooling, quarantined, withheld or left_out
	Why     string     `json:"why,omitempty"`

	addr netip.Addr
}

// A merged is two records that are made into one book. Of an address it has one row.
type merged struct {
	salvage.Found
	from        map[netip.Addr]string // where its row is from
	leftOut     []Outcome
	unexplained []string // of the report

	source string
	behind map[*ipam.Lease]*ipam.Lease // who hibernated in the older record, by the row that is being released
}

// merge takes an older record into the present one. What the present book knows wins: its
// rows, and that a lease has ended. Of the older record comes what the present one does not
// know: addresses without a row, and the owner of one that the present book could only
// quarantine, or saw only another end with. Of a delegated prefix in which the other record
// wins a part comes the rest.
func merge(older, present salvage.Found, source string) merged {
	out := merged{Found: salvage.Found{
		Epoch: present.Epoch, RunnerUID: cmp.Or(older.RunnerUID, present.RunnerUID), MachineID: cmp.Or(older.MachineID, present.MachineID),
		Runtime: cmp.Or(present.Runtime, older.Runtime), Ended: maps.Clone(present.Ended), Withheld: make(map[netip.Addr]ipam.Withheld),
	}, from: make(map[netip.Addr]string), source: source, behind: make(map[*ipam.Lease]*ipam.Lease)}
	if out.Ended == nil {
		out.Ended = make(map[string]bool)
	}
	maps.Copy(out.Ended, older.Ended) // a label of a container can name one that only the older record saw end
	now := newPlaces(present.Leases)
	back := make(map[*ipam.Lease][]*ipam.Lease) // the leases of the older record for which a present row gives way
	var behind []*ipam.Lease
	for _, l := range older.Leases {
		over := now.overlapping(l)
		if i := slices.IndexFunc(over, func(is *ipam.Lease) bool { return is.ID == l.ID && l.ID != "" }); i >= 0 { // the same lease, as it is now
			if is := over[i]; is.Sandbox != "" && placeless(is) {
				is.Containers, is.Netns, is.HostInterface, is.MAC, is.Plug = l.Containers, l.Netns, l.HostInterface, l.MAC, l.Plug
			}
			continue
		}
		another := older.Epoch != present.Epoch
		wins := slices.DeleteFunc(slices.Clone(over), func(is *ipam.Lease) bool { return yields(is, l, another) })
		old := *l
		old.Rev -= 1 << 40 // it was released before all that the present book has: revisions of two books do not compare
		if old.Cooled != 0 {
			old.Cooled -= 1 << 40
		}
		parts, why := without(&old, wins), ""
		switch {
		case present.Ended[l.ID] && l.ID != "" && l.State != ipam.Cooling:
			why = "the present book saw it end"
		case len(parts) == 0:
			why = fmt.Sprintf("the present book has %s", asItIs(wins[0]))
		case present.Ended[l.ID] && l.ID != "":
			why = "the present book saw its cooldown end"
		}
		if len(over) == 1 && another && !present.Ended[l.ID] && hibernates(l, older.Sleeps) && over[0].State == ipam.Releasing && over[0].Range() == l.Range() && others(over[0], l) {
			out.behind[over[0]] = &old
		}
		if why != "" {
			out.leftOut = append(out.leftOut, outcomeOf(l, source, "left_out", why))
			continue
		}
		for _, is := range over {
			if yields(is, l, another) {
				back[is] = append(back[is], l)
			}
		}
		out.keepWithheld(l, older.Withheld, parts)
		for _, part := range parts {
			out.from[part.Addr] = source
		}
		behind = append(behind, parts...)
	}
	for _, l := range present.Leases { // first: of two leases of one interface the present one is given back
		parts := without(l, back[l])
		if len(parts) == 0 && l.State == ipam.Cooling {
			out.leftOut = append(out.leftOut, outcomeOf(l, "book", "left_out", fmt.Sprintf("the %s has %s", source, asItIs(back[l][0]))))
		}
		out.keepWithheld(l, present.Withheld, parts)
		for _, part := range parts {
			out.from[part.Addr] = "book"
		}
		out.Leases = append(out.Leases, parts...)
	}
	out.Leases = append(out.Leases, behind...)
	for _, r := range slices.Concat(present.Named, older.Named) {
		known := slices.ContainsFunc(out.Leases, func(l *ipam.Lease) bool { return l.Range().Contains(r.From) && l.Range().Contains(r.To) })
		if !known && !slices.Contains(out.Named, r) {
			out.Named = append(out.Named, r)
		}
	}
	out.Subnets = older.Subnets
	out.Sleeps = maps.Clone(older.Sleeps)
	if out.Sleeps == nil {
		out.Sleeps = make(map[string]*ipam.Sleep)
	}
	maps.Copy(out.Sleeps, present.Sleeps)
	out.Cancelled = slices.Concat(present.Cancelled, older.Cancelled) // the newest of a sandbox counts
	out.mergePools(&older, &present, source)
	out.HostNames = slices.Concat(present.HostNames, older.HostNames)
	for _, p := range present.Problems {
		out.Problems = append(out.Problems, "the present one: "+p)
	}
	for _, p := range older.Problems {
		out.Problems = append(out.Problems, "the "+source+": "+p)
	}
	return out
}

// yields reports that a present row gives way to a lease of the older record, which the
// present book did not see end: the row cools after another lease, or it is a quarantine of
// which the present book knows no owner. Where one book is the other's past, or the same sandbox
// had the address again, a cooldown shows that the lease has ended: it was given behind it.
func yields(is, l *ipam.Lease, another bool) bool {
	switch {
	case l.State == ipam.Cooling:
		return false
	case is.State == ipam.Cooling:
		return another && l.Sandbox != "" && others(is, l)
	}
	return is.State == ipam.Quarantined && is.Sandbox == "" && is.Hold == "" && l.Sandbox != ""
}

// others reports that two leases are of two owners.
func others(a, b *ipam.Lease) bool {
	return a.Sandbox != b.Sandbox || a.UID != b.UID || a.Interface != b.Interface
}

// hibernates reports that a lease is of a sandbox that has no task and no port: nothing shows it.
func hibernates(l *ipam.Lease, sleeps map[string]*ipam.Sleep) bool {
	how := sleeps[l.ID]
	return l.State == ipam.Paused && how != nil && !how.Plain && how.Mode == ipam.Hibernate
}

// passOver gives the address of a lease that was being released when nothing is there of it any
// more to who hibernated with it: the first has nothing to lose but its end, which there shows.
// gone says so of one; it is asked once the witnesses have answered.
func (m *merged) passOver(gone func(*ipam.Lease) bool) {
	for i, was := range m.Leases {
		asleep := m.behind[was]
		if asleep == nil || !gone(was) {
			continue
		}
		m.Leases[i], m.from[was.Addr], m.Ended[was.ID] = asleep, m.source, true
		m.leftOut = slices.DeleteFunc(m.leftOut, func(o Outcome) bool { return o.From == m.source && o.LeaseID == asleep.ID })
		m.leftOut = append(m.leftOut, outcomeOf(was, "book", "left_out", fmt.Sprintf("it was being released, nothing is there of it, and the %s has %s", m.source, asItIs(asleep))))
	}
}

// keepWithheld records of what is left of a row, if it outlived its pool, what its record
// knew of it.
func (m *merged) keepWithheld(l *ipam.Lease, withheld map[netip.Addr]ipam.Withheld, parts []*ipam.Lease) {
	w, is := withheld[l.Addr]
	if !is {
		return
	}
	for _, part := range parts {
		w.Addr, w.PrefixLen = part.Addr, part.PrefixLen
		m.Withheld[part.Addr] = w
	}
}

func asItIs(l *ipam.Lease) string {
	is := fmt.Sprintf("%s as %s", l.Text(), l.State)
	if l.Sandbox != "" {
		is += " by sandbox " + shown(l.Sandbox)
	}
	return is
}

// places finds the rows of one record that have an address of another record's row. Of two
// rows that overlap one contains the other.
type places struct {
	rows []*ipam.Lease // in numeric order
	at   map[netip.Addr]*ipam.Lease
	bits map[int]bool // of the delegated prefixes among them
}

func newPlaces(rows []*ipam.Lease) places {
	p := places{rows, make(map[netip.Addr]*ipam.Lease), make(map[int]bool)}
	for _, l := range rows {
		p.at[l.Addr] = l
		if l.PrefixLen != 0 {
			p.bits[l.PrefixLen] = true
		}
	}
	return p
}

func (p places) overlapping(l *ipam.Lease) (out []*ipam.Lease) {
	for bits := range p.bits {
		around, err := l.Addr.Prefix(bits)
		if err != nil { // of the other family
			continue
		}
		if row := p.at[around.Addr()]; row != nil && row.Addr != l.Addr && row.Covers(l.Addr) && !slices.Contains(out, row) {
			out = append(out, row)
		}
	}
	in := l.Range()
	i, _ := slices.BinarySearchFunc(p.rows, in.From, func(row *ipam.Lease, a netip.Addr) int { return row.Addr.Compare(a) })
	for ; i < len(p.rows) && p.rows[i].Addr.Compare(in.To) <= 0; i++ {
		out = append(out, p.rows[i])
	}
	return out
}

// placeless reports that a row does not say how its lease is used.
func placeless(l *ipam.Lease) bool {
	return len(l.Containers) == 0 && l.Netns == "" && l.HostInterface == "" && l.MAC == ""
}

func outcomeOf(l *ipam.Lease, from, outcome, why string) Outcome {
	return Outcome{addr: l.Addr, Address: l.Text(), Sandbox: l.Sandbox, LeaseID: l.ID, From: from, Was: l.State, Outcome: outcome, Why: why}
}

// untilUnseen is why an address is quarantined that no operator has to clear. One that is seen
// may be its owner's: only a lease whose own workload is known to live is given back.
func untilUnseen(seen []census.Sighting) string {
	until := "until it is not seen for long enough"
	if len(seen) == 0 {
		return until
	}
	return fmt.Sprintf("it is seen by the %s witness%s, and nothing shows that this is its own workload; %s", seen[0].Witness, seen[0].Where(), until)
}

// outcomes says what became of each lease of both records, by the book that was made and what
// was seen then.
func (m *merged) outcomes(b *netdb.Book, seen census.Census) []Outcome {
	all := slices.Clone(m.leftOut)
	for _, l := range m.Leases {
		source, row := m.from[l.Addr], (*ipam.Lease)(nil)
		if is, there := b.At(l.Addr); there {
			row = is
		}
		o := outcomeOf(l, source, "left_out", "another sandbox lives with it, or its cooldown was over")
		switch {
		case row == nil && b.Place(l.Addr).Withheld != nil:
			o.Outcome, o.Why = "withheld", "no pool gives it: the next one that could takes it over"
		case row == nil:
		case row.State == ipam.Quarantined:
			o.Outcome, o.Why = "quarantined", cmp.Or(row.Hold, untilUnseen(workload.SeenOf(seen, l)))
		case row.State == ipam.Cooling:
			o.Outcome, o.Why = "cooling", ""
		case l.Sandbox == "": // it was taken, and by whom the file does not say
			o.Outcome, o.Why, o.Sandbox, o.LeaseID = "back", "its workload lives", row.Sandbox, row.ID
		case row.ID == l.ID || row.Sandbox == l.Sandbox:
			o.Outcome, o.Why = "kept", ""
			if source != "book" {
				o.Outcome = "back"
			}
		}
		all = append(all, o)
	}
	slices.SortStableFunc(all, func(x, y Outcome) int {
		return x.addr.Compare(y.addr)
	})
	return all
}
