package enforce

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/ipamd/ipamd/nft"
)

// A PortView is one port of the bridges: what it may use, and what was refused of it.
type PortView struct {
	Port
	Grants  []Grant // none: it has no lease
	Trusted bool    // it may send without one
	Refused []Refusal
}

// A Difference is one thing by which the kernel's table is not what the book asks for.
type Difference struct {
	Missing bool // it should be there; else it should not
	Element bool // What is an element of a set, in nft's language; else it says in words what is wrong
	What    string
	Port    int    // that it is about; 0: none alone
	Lease   string // that asks for it; "": none alone
}

// ID names our table as nft does.
func ID() string { return nft.TableID(nft.Bridge, TableName) }

// String is one sentence without its end.
func (d Difference) String() string {
	out := d.What
	switch {
	case !d.Element:
	case d.Missing:
		out += " is missing"
	default:
		out += " is too much"
	}
	if d.Lease != "" {
		out += " (lease " + d.Lease + ")"
	}
	return out
}

// A View is the rules as they are.
type View struct {
	Status
	Portless    []Grant    // of leases without a port: their addresses are kept from all
	Ports       []PortView // in order of their indexes
	Gone        []Refusal  // before a port had its present leases or this process began, and of ports that are no more
	Differences []Difference
}

// View shows the rules as memory has them, with the kernel's counters as they are now, and
// where compared is asked for with what the kernel's table has otherwise. Binds wait while the
// counters are read, and not while the tables are compared. [ErrRestless] beside a view means that binds changed the table each
// time that it was read, so that nothing can be said of it.
func (k *Keeper) View(ctx context.Context, compared bool) (View, error) {
	refused, err := k.Refusals()
	if err != nil {
		return View{Status: k.Status()}, err
	}
	v := k.view(refused)
	if compared {
		v.Differences, err = k.differences(ctx)
	}
	return v, err
}

// view is what memory has.
func (k *Keeper) view(refused []Refusal) View {
	v := View{Status: k.Status()}
	k.mu.Lock()
	defer k.mu.Unlock()
	at := map[int]*PortView{}
	for i, p := range k.ports {
		at[i] = &PortView{Port: p}
	}
	for _, g := range k.grants {
		for _, one := range g {
			if one.Port == 0 {
				v.Portless = append(v.Portless, one)
				continue
			}
			if at[one.Port] == nil { // it has gone, and its lease has not
				at[one.Port] = &PortView{Port: Port{Index: one.Port}}
			}
			at[one.Port].Grants = append(at[one.Port].Grants, one)
		}
	}
	sortGrants(v.Portless)
	for _, r := range refused {
		if p := at[r.Port]; p != nil {
			p.Refused = append(p.Refused, r)
		} else {
			v.Gone = append(v.Gone, r)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(at)) {
		sortGrants(at[i].Grants)
		at[i].Trusted = len(at[i].Grants) == 0 && k.cfg.Policy.Trusts(at[i].Name)
		v.Ports = append(v.Ports, *at[i])
	}
	return v
}

// ErrRestless means that the table was changed each time that it was read.
var ErrRestless = errors.New("the rules changed each time that they were read: ask again")

// mostLooks bounds how often a table that binds change meanwhile is read for a comparison.
const mostLooks = 5

// differences reads the table and compares it with what it should be. A reading beside which
// we wrote says nothing.
func (k *Keeper) differences(ctx context.Context) ([]Difference, error) {
	for range mostLooks {
		want, asks, mark, writes := k.wanted()
		have, err := k.look.Read(ctx, want)
		if err != nil {
			return nil, err
		}
		k.mu.Lock()
		quiet := k.writes == writes
		k.mu.Unlock()
		if quiet {
			if have != nil && mark.Comment != "" && sameMark(have) == mark.Comment {
				want.Set(setBook).Elements = []nft.Element{mark} // it is behind the book by what no rule follows from
			}
			return differ(have, want, asks), nil
		}
	}
	return nil, ErrRestless
}

// wanted is the table that should be there, the lease that asks for each element, the mark
// that it was given last, and how often it was written.
func (k *Keeper) wanted() (want *nft.Table, asks map[member]string, mark nft.Element, writes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	asks = map[member]string{}
	for lease, grants := range k.grants {
		for _, g := range grants {
			for _, m := range k.cfg.Policy.members(g) {
				asks[m] = lease
			}
		}
	}
	if k.made {
		mark = k.mark
	}
	return Ruleset(k.cfg.Policy, k.world(k.cfg.Book.Epoch(), k.cfg.Book.Rev())), asks, mark, k.writes
}

func differ(have, want *nft.Table, asks map[member]string) (out []Difference) {
	for _, d := range nft.Compare(have, want) {
		one := Difference{Missing: d.Missing, What: d.What}
		if d.Set != nil {
			one.Element = true
			one.What = d.Set.Name + " { " + d.Set.Describe(d.Element) + " }"
			one.Lease = asks[member{d.Set.Name, d.Element}]
			if !slices.Contains([]string{setBook, setBridges, setTakenMACs, setTaken4, setTaken6, setTakenPrefix4, setTakenPrefix6}, d.Set.Name) && len(d.Element.Key) >= 4 {
				one.Port = int(binary.NativeEndian.Uint32([]byte(d.Element.Key)))
			}
		}
		out = append(out, one)
	}
	slices.SortStableFunc(out, func(a, b Difference) int { return a.Port - b.Port })
	return out
}
