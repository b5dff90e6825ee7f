package rebuild

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/netdb"
)

// An Outcome is what becomes of one lease of a file that is taken in, or of the present
// book.
type Outcome struct {
	Address string      `json:"address"` // of a delegated prefix with its length
	Sandbox string      `json:"sandbox,omitempty"`
	LeaseID string      `json:"lease_id,omitempty"`
	From    string      `json:"from"`    // backup, file or book: the present one
	Was     netdb.State `json:"was"`     // there
	Outcome string      `json:"outcome"` // kept, back, cooling, quarantined, withheld or left_out
	Why     string      `json:"why,omitempty"`

	addr netip.Addr
}

// A merged is two records that are made into one book. Of an address it has one row.
type merged struct {
	netdb.Salvaged
	from    map[netip.Addr]string // where its row is from
	leftOut []Outcome
}

// merge takes an older record into the present one. What the present book knows wins: its
// rows, and that a lease has ended. Of the older record comes what the present one does not
// know: addresses without a row, and the owner of one that the present book could only
// quarantine. source names the older record.
func merge(older, present netdb.Salvaged, source string) merged {
	out := merged{Salvaged: netdb.Salvaged{
		Epoch: present.Epoch, RunnerUID: cmp.Or(older.RunnerUID, present.RunnerUID), MachineID: cmp.Or(older.MachineID, present.MachineID),
		Runtime: cmp.Or(present.Runtime, older.Runtime), Ended: maps.Clone(present.Ended), Withheld: maps.Clone(older.Withheld),
	}, from: make(map[netip.Addr]string)}
	if out.Ended == nil {
		out.Ended = make(map[string]bool)
	}
	maps.Copy(out.Ended, older.Ended) // a label of a container can name one that only the older record saw end
	if out.Withheld == nil {
		out.Withheld = make(map[netip.Addr]netdb.Withheld)
	}
	maps.Copy(out.Withheld, present.Withheld)
	now := make(map[netip.Addr]*netdb.Lease)
	for _, l := range present.Leases {
		now[l.Addr] = l
	}
	var behind []*netdb.Lease
	for _, l := range older.Leases {
		is, why := overlapping(present.Leases, l), ""
		switch {
		case is != nil && is.ID == l.ID: // the same lease, as it is now
			if is.Sandbox != "" && placeless(is) {
				filled := *is
				filled.Containers, filled.Netns, filled.HostInterface, filled.MAC = l.Containers, l.Netns, l.HostInterface, l.MAC
				*is = filled
			}
			continue
		case present.Ended[l.ID] && l.ID != "" && l.State != netdb.Cooling:
			why = "the present book saw it end"
		case present.Ended[l.ID] && l.ID != "" && is == nil:
			why = "the present book saw its rest end"
		case is != nil && !(is.State == netdb.Quarantined && is.Sandbox == "" && is.Hold == "" && l.Sandbox != "" && is.Text() == l.Text()):
			why = fmt.Sprintf("the present book has %s as %s", is.Text(), is.State)
			if is.Sandbox != "" {
				why += " by sandbox " + shown(is.Sandbox)
			}
		}
		if why != "" {
			out.leftOut = append(out.leftOut, outcomeOf(l, source, "left_out", why))
			continue
		}
		delete(now, l.Addr)
		out.from[l.Addr] = source
		old := *l
		old.Rev -= 1 << 40 // it was released before all that the present book has: revisions of two books do not compare
		behind = append(behind, &old)
	}
	for _, l := range present.Leases { // first: of two leases of one interface the present one is given back
		if now[l.Addr] == l {
			out.from[l.Addr], out.Leases = "book", append(out.Leases, l)
		}
	}
	out.Leases = append(out.Leases, behind...)
	for _, r := range slices.Concat(present.Named, older.Named) {
		known := slices.ContainsFunc(out.Leases, func(l *netdb.Lease) bool { return l.Range().Contains(r.From) && l.Range().Contains(r.To) })
		if !known && !slices.Contains(out.Named, r) {
			out.Named = append(out.Named, r)
		}
	}
	out.Subnets = older.Subnets
	out.Sleeps = maps.Clone(older.Sleeps)
	if out.Sleeps == nil {
		out.Sleeps = make(map[string]*netdb.Sleep)
	}
	maps.Copy(out.Sleeps, present.Sleeps)
	out.Cancelled = slices.Concat(present.Cancelled, older.Cancelled) // the newest of a sandbox counts
	out.mergePools(&older, &present)
	out.HostNames = slices.Concat(present.HostNames, older.HostNames)
	for _, p := range present.Problems {
		out.Problems = append(out.Problems, "the present one: "+p)
	}
	for _, p := range older.Problems {
		out.Problems = append(out.Problems, "the "+source+": "+p)
	}
	return out
}

// overlapping returns the row, of those in numeric order, that has an address of another
// record's row; of a delegated prefix that is any one of them.
func overlapping(rows []*netdb.Lease, l *netdb.Lease) *netdb.Lease {
	in := l.Range()
	i, _ := slices.BinarySearchFunc(rows, in.To, func(row *netdb.Lease, last netip.Addr) int {
		if row.Addr.Compare(last) <= 0 {
			return -1
		}
		return 1
	})
	if i == 0 || rows[i-1].Range().To.Less(in.From) {
		return nil
	}
	return rows[i-1]
}

// placeless reports that a row does not say how its lease is used.
func placeless(l *netdb.Lease) bool {
	return len(l.Containers) == 0 && l.Netns == "" && l.HostInterface == "" && l.MAC == ""
}

func outcomeOf(l *netdb.Lease, from, outcome, why string) Outcome {
	return Outcome{addr: l.Addr, Address: l.Text(), Sandbox: l.Sandbox, LeaseID: l.ID, From: from, Was: l.State, Outcome: outcome, Why: why}
}

// outcomes says what became of each lease of both records, by the book that was made.
func (m *merged) outcomes(b *netdb.Book) []Outcome {
	all := slices.Clone(m.leftOut)
	for _, l := range m.Leases {
		source, row := m.from[l.Addr], (*netdb.Lease)(nil)
		if is, there := b.At(l.Addr); there {
			row = is
		}
		o := outcomeOf(l, source, "left_out", "another sandbox lives with it, a gateway has it, or its rest was over")
		switch {
		case row == nil && b.Place(l.Addr).Withheld != nil:
			o.Outcome, o.Why = "withheld", "no pool has it: the next one that contains it takes it over"
		case row == nil:
		case row.State == netdb.Quarantined:
			o.Outcome, o.Why = "quarantined", cmp.Or(row.Hold, "until it is not seen for long enough")
		case row.State == netdb.Cooling:
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
