package reconciler

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// A Finding is one disagreement of book, wire and runtime, or something else
// that a person should look at.
type Finding struct {
	Kind    string // lower_snake
	Addr    netip.Addr
	LeaseID string
	Detail  string
	Since   time.Time // zero when unknown
	Mend    string    // the verb that mends it
}

// A World is all that Diagnose looks at.
type World struct {
	Leases     []*netdb.Lease
	Usage      []netdb.Usage
	Unreadable []netdb.Unreadable
	ReadOnly   error // the book cannot be written
	Unready    error // the bridge is not ready
	Identity   error // the book belongs to another runner
	Census     census.Census
	Place      func(netip.Addr) netdb.Place
	Strangers  func(*netdb.Lease, []census.Sighting) []census.Sighting

	QuarantineShare float64
	ReleasingMax    time.Duration
	Now             netdb.Stamp
}

// nearCap is the part of the quarantine's share from which it is told.
const nearCap = 0.8

// Diagnose lists every finding, in the order of the addresses. It decides
// nothing and changes nothing.
func Diagnose(w World) []Finding {
	var out []Finding
	add := func(f Finding) { out = append(out, f) }
	if w.Identity != nil {
		add(Finding{Kind: "identity_mismatch", Detail: w.Identity.Error(),
			Mend: "give book.path a book of this runner's own; if only the name differs, give book.runner_uid the book's"})
	}
	if w.Unready != nil {
		add(Finding{Kind: "bridge_not_ready", Detail: w.Unready.Error(), Mend: "mend the bridge, or set bridge.manage = true"})
	}
	if w.ReadOnly != nil {
		add(Finding{Kind: "book_readonly", Detail: w.ReadOnly.Error(), Mend: "make room on the disk or make it writable; ipamd goes on by itself"})
	}
	for _, s := range w.Census.Silent {
		add(Finding{Kind: "witness_silent", Detail: fmt.Sprintf("the %s witness cannot answer: %s", s.Witness, s.Reason),
			Since: s.Since, Mend: "ipamctl status"})
	}
	for _, u := range w.Unreadable {
		add(Finding{Kind: "unreadable_row", Detail: fmt.Sprintf("row %q: %s", u.Row, u.Reason), Mend: "ipamd check"})
	}
	for _, u := range w.Usage {
		cap := float64(u.Size) * w.QuarantineShare
		if n := u.ByState[netdb.Quarantined]; n > 0 && float64(n) >= nearCap*cap {
			add(Finding{Kind: "quarantine_near_cap", Detail: fmt.Sprintf("pool %s: %d of at most %.0f addresses", u.Pool.Name, n, max(cap, 1)),
				Mend: "ipamctl quarantine ls"})
		}
	}
	held := make(map[netip.Addr]bool)
	for _, l := range w.Leases {
		held[l.Addr] = l.State != netdb.Cooling
		w.lease(l, add)
	}
	for addr, seen := range w.Census.Seen {
		if place := w.Place(addr); place.Usable && !held[addr] {
			add(Finding{Kind: "foreign", Addr: addr, Detail: fmt.Sprintf("no lease explains what the %s witness sees%s", seen[0].Witness, seen[0].Where()),
				Since: seen[0].At, Mend: "ipamctl whois " + addr.String()})
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Kind, b.Kind)) })
	return out
}

// lease adds what is to say about one lease.
func (w World) lease(l *netdb.Lease, add func(Finding)) {
	f := Finding{Addr: l.Addr, LeaseID: l.ID, Since: l.Since.Wall}
	seen := w.Census.Seen[l.Addr]
	rest := w.Now.Since(l.Since)
	switch {
	case l.State == netdb.Quarantined:
		f.Kind, f.Detail = "quarantined", "set aside: "+l.Reason
		if words := byHand(l); words != "" {
			f.Detail = "set aside by the operator: " + words
		}
		f.Mend = "ipamctl whois " + l.Addr.String()
		add(f)
	case l.State == netdb.Reserved && rest > l.BindWithin:
		f.Kind, f.Detail = "reserved_past_deadline", fmt.Sprintf("sandbox %q has not bound it within %v", l.Sandbox, l.BindWithin)
		f.Mend = "ipamctl release " + l.ID
		add(f)
	case l.State == netdb.Releasing && rest > w.ReleasingMax:
		f.Kind, f.Detail = "releasing_stuck", fmt.Sprintf("sandbox %q let it go; its removal is not confirmed", l.Sandbox)
		f.Mend = "ipamctl show " + l.ID
		add(f)
	case l.State == netdb.Bound && len(seen) == 0 && w.Census.Complete():
		f.Kind, f.Detail = "bound_unseen", fmt.Sprintf("no witness sees sandbox %q", l.Sandbox)
		f.Mend = "ipamctl show " + l.ID
		add(f)
	}
	if !l.State.Open() && l.State != netdb.Releasing {
		return
	}
	if strangers := w.Strangers(l, seen); len(strangers) > 0 {
		f.Kind, f.Since = "conflict", strangers[0].At
		f.Detail = fmt.Sprintf("held by sandbox %q, but the %s witness sees it under somebody else%s", l.Sandbox, strangers[0].Witness, strangers[0].Where())
		f.Mend = "ipamctl whois " + l.Addr.String()
		add(f)
	}
}

// byHand is what the operator said who quarantined the address; "" when
// nobody did.
func byHand(l *netdb.Lease) string {
	var evidence []census.Sighting
	if json.Unmarshal(l.Evidence, &evidence) != nil {
		return "" // whois shows it as it is
	}
	for _, s := range evidence {
		if s.Witness == census.Witness(netdb.ByOperator) {
			return s.Note
		}
	}
	return ""
}
