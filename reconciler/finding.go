package reconciler

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A Finding is one disagreement of book, wire and runtime, or something else
// that a person should look at.
type Finding struct {
	Kind    string // lower_snake
	Addr    netip.Addr
	LeaseID string
	Detail  string    // what, and which witnesses say so
	Since   time.Time // zero when unknown
	Repair  string    // the command that repairs it, or shows how
	Because string    // the kind of the finding that this one follows from; "" when it has a cause of its own

	// Of many that were made one: how many, and the first of their addresses.
	Count int
	Addrs []netip.Addr

	Source Source // who is seen there
}

// A Source is who is seen on an address: one MAC behind one port. The zero value
// is an unknown one.
type Source struct{ Port, MAC string }

func sourceOf(s census.Sighting) Source {
	if s.Container != "" || s.MAC == "" {
		return Source{} // a workload of its own, or none that could be recognised
	}
	return Source{s.Port, s.MAC}
}

// quarantinedFor is who was seen when an address was quarantined.
func quarantinedFor(evidence json.RawMessage) Source {
	if seen := census.ParseEvidence(evidence); len(seen) > 0 {
		return sourceOf(seen[0])
	}
	return Source{}
}

func sortFindings(fs []Finding) {
	slices.SortStableFunc(fs, func(a, b Finding) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Kind, b.Kind)) })
}

func whois(addr netip.Addr) string { return "ipamctl whois " + addr.String() }

// dispute finds an address that is held, or being released, and that another claims
// too.
func (v *view) dispute(l *ipam.Lease) (Finding, bool) {
	seen := workload.SeenOf(v.census, l)
	if len(seen) == 0 {
		return Finding{}, false
	}
	if claims := claimants(seen); len(claims) > 1 {
		own := v.of(l)
		others := slices.DeleteFunc(slices.Clone(claims), func(c claimant) bool {
			return slices.ContainsFunc(c.containers, func(s census.Sighting) bool { return slices.Contains(own, s) })
		})
		if len(others) > 0 {
			return twoClaimants(l.Addr, l.ID, claims), true
		}
	}
	strangers := v.leases.Strangers(l, seen)
	if len(strangers) == 0 {
		return Finding{}, false
	}
	if _, own := v.differs(l); own {
		return Finding{}, false
	}
	return Finding{Kind: "conflict", Addr: l.Addr, LeaseID: l.ID, Since: strangers[0].At, Repair: whois(l.Addr), Source: sourceOf(strangers[0]),
		Detail: fmt.Sprintf("held by sandbox %q, but the %s witness sees it under another%s%s", l.Sandbox, strangers[0].Witness, strangers[0].Where(), contrast(l, strangers[0]))}, true
}

// contrast says what of a sighting is not as the lease records it.
func contrast(l *ipam.Lease, s census.Sighting) string {
	var words []string
	if l.MAC != "" && s.MAC != "" {
		if s.MAC == l.MAC {
			words = append(words, "the recorded MAC "+s.MAC)
		} else {
			words = append(words, fmt.Sprintf("MAC %s, not %s", s.MAC, l.MAC))
		}
	}
	if l.HostInterface != "" && s.Port != "" && !s.Behind(l.HostInterface) {
		words = append(words, fmt.Sprintf("port %s, not %s", s.Port, l.HostInterface))
	}
	if len(words) == 0 {
		return ""
	}
	return ": " + strings.Join(words, ", ")
}

// differs finds a lease whose record of its own plumbing is wrong, as
// [workload.Leases.Differs] has it. A lease whose containers are all gone has no
// plumbing of its own: what is behind the port is another's, or left over.
func (v *view) differs(l *ipam.Lease) (census.Sighting, bool) {
	at, found := v.leases.Differs(l, workload.SeenOf(v.census, l))
	gone := found && v.runtime && !v.silent(census.Runtime) && len(l.Containers) > 0 && len(v.of(l)) == 0
	return at, found && !gone
}

// misbound is the finding of such a lease, while no conflict of it stands.
func (v *view) misbound(l *ipam.Lease) (Finding, bool) {
	at, found := v.differs(l)
	if !found || l.Conflict != nil {
		return Finding{}, false
	}
	return Finding{Kind: "binding_differs", Addr: l.Addr, LeaseID: l.ID, Since: at.At, Repair: fmt.Sprintf("ipamctl bind %s --mac %s", l.ID, at.MAC),
		Detail: fmt.Sprintf("sandbox %q is bound with MAC %s, and the %s witness sees it with %s%s, its own port: no other is seen", l.Sandbox, l.MAC, at.Witness, at.MAC, at.Where())}, true
}

func twoClaimants(addr netip.Addr, leaseID string, claims []claimant) Finding {
	f := Finding{Kind: "two_claimants", Addr: addr, LeaseID: leaseID, Repair: whois(addr)}
	var who []string
	for _, c := range claims {
		s := c.containers[0]
		words := c.name()
		if c.sandbox != "" {
			words += s.Where()
		}
		who = append(who, words)
		if s.At.After(f.Since) {
			f.Since = s.At // it takes the last one to make it two
		}
	}
	f.Detail = "the runtime shows it claimed by " + strings.Join(who, " and ") + "; whose it is, a person has to say"
	return f
}

// stray finds an address that lives on without the workload it was given to:
// no container of a lease is left, or none has come in time, and a witness
// sees the address. A bound lease that records no container never had one for
// the runtime to know.
func (v *view) stray(l *ipam.Lease) (Finding, bool) {
	seen := workload.SeenOf(v.census, l)
	left := l.State == ipam.Bound && v.runtime && len(l.Containers) > 0
	if v.silent(census.Runtime) || len(seen) == 0 || len(v.of(l)) > 0 || !left && !v.pastDeadline(l) {
		return Finding{}, false
	}
	if _, disputed := v.dispute(l); disputed {
		return Finding{}, false // reported as that
	}
	why := "the runtime shows no container of it"
	if !left {
		why = fmt.Sprintf("it was not bound within %v", l.BindWithin)
	}
	return Finding{Kind: "stray", Addr: l.Addr, LeaseID: l.ID, Since: seen[0].At, Repair: whois(l.Addr), Source: sourceOf(seen[0]),
		Detail: fmt.Sprintf("held by sandbox %q; %s, yet the %s witness sees it%s", l.Sandbox, why, seen[0].Witness, seen[0].Where())}, true
}

// unproven is a claim that nothing but labels makes.
func unproven(addr netip.Addr, row *ipam.Lease, c claimant) Finding {
	f := Finding{Kind: "unleased", Addr: addr, Since: c.containers[0].At, Repair: whois(addr) + " # if it is that sandbox's own: ipamctl quarantine adopt " + addr.String() + " --sandbox NAME --reason WHY",
		Detail: fmt.Sprintf("the runtime shows %s, which claims it; but no task of it lives where the address is, and no lease that the book knows is named: it is kept from others, and not given to it",
			c.name()+c.containers[0].Where())}
	if row != nil {
		f.LeaseID = row.ID
	}
	return f
}

// unleased is a workload that lives with an address and holds no lease of it.
func unleased(v *view, addr netip.Addr, row *ipam.Lease, c claimant, seen []census.Sighting) Finding {
	f := Finding{Kind: "unleased", Addr: addr, Since: c.containers[0].At, Repair: "ipamctl reconcile"}
	rest := "holds no lease of it"
	switch {
	case row == nil:
	case heldBack(row):
		// Clear refuses an address that is seen.
		rest, f.Repair = "is held back by an operator", whois(addr)+" # once its container is removed: ipamctl quarantine clear "+addr.String()
		f.LeaseID = row.ID
	case !c.mayHave(v, row, seen):
		rest, f.Repair = fmt.Sprintf("claims it since before it was %s", row.State), whois(addr)
		f.LeaseID = row.ID
	}
	f.Detail = fmt.Sprintf("the runtime shows %s, which claims it: it %s", c.name()+c.containers[0].Where(), rest)
	if why := c.unfit(); why != "" {
		s := c.containers[0]
		f.Detail = fmt.Sprintf("the runtime shows container %s/%s, which claims it, and no lease can be made for it: %s", s.Namespace, s.Container, why)
		f.Repair = fmt.Sprintf("ctr -n %s containers info %s", s.Namespace, s.Container)
	}
	if c.sandbox == "" {
		f.Detail = fmt.Sprintf("the runtime shows %s, which claims it: it %s and names no owner", c.name(), rest)
		f.Repair = whois(addr)
	}
	return f
}
