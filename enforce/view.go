package enforce

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/ipamd/ipamd/nft"
)

// A PortView is one port of the bridges: what it may use, and what was refused of it.
type PortView struct {
	Port
	Grants  []Grant // none: it has no lease
	Refused []Refusal
}

// A Difference is one thing by which the kernel's table is not what the book asks for.
type Difference struct {
	Missing bool   // it should be there; else it should not
	What    string // in nft's language, or in words
	Port    int    // that it is about; 0: none alone
	Lease   string // that asks for it; "": none alone

	element bool // What is one
}

// ID names our table as nft does.
func ID() string { return nft.TableID(nft.Bridge, TableName) }

// String is one sentence without its end.
func (d Difference) String() string {
	out := d.What
	switch {
	case !d.element:
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
	Ports       []PortView // in order of their indexes
	Gone        []Refusal  // of ports that are no more
	Differences []Difference
}

// View shows the rules as memory has them, with the kernel's counters as they are now, and
// where compared is asked for with what the kernel's table has otherwise: it is read as a
// whole then, and binds wait for that (some 15 ms with a thousand leases).
func (k *Keeper) View(ctx context.Context, compared bool) (View, error) {
	refused, err := k.Refusals()
	v := View{Status: k.Status()}
	if err != nil {
		return v, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at := map[int]*PortView{}
	for i, p := range k.ports {
		at[i] = &PortView{Port: p}
	}
	for _, g := range k.grants {
		for _, one := range g {
			if at[one.Port] == nil { // it has gone, and its lease has not
				at[one.Port] = &PortView{Port: Port{Index: one.Port}}
			}
			at[one.Port].Grants = append(at[one.Port].Grants, one)
		}
	}
	for _, r := range refused {
		if p := at[r.Port]; p != nil {
			p.Refused = append(p.Refused, r)
		} else {
			v.Gone = append(v.Gone, r)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(at)) {
		sortGrants(at[i].Grants)
		v.Ports = append(v.Ports, *at[i])
	}
	if compared {
		v.Differences, err = k.differences(ctx)
	}
	return v, err
}

// differences reads the table and compares it. Call it with mu held.
func (k *Keeper) differences(ctx context.Context) (out []Difference, err error) {
	want := Ruleset(k.cfg.Policy, k.world())
	have, err := k.conn.Read(ctx, want)
	if err != nil {
		return nil, err
	}
	if have != nil && k.made && sameMark(have) == k.mark.Comment {
		want.Set(setBook).Elements = []nft.Element{k.mark} // it is behind the book by what no rule follows from
	}
	asks := map[member]string{}
	for lease, grants := range k.grants {
		for _, g := range grants {
			for _, m := range k.cfg.Policy.members(g) {
				asks[m] = lease
			}
		}
	}
	for _, d := range nft.Compare(have, want) {
		one := Difference{Missing: d.Missing, What: d.What}
		if d.Set != nil {
			one.element = true
			one.What = d.Set.Name + " { " + d.Set.Describe(d.Element) + " }"
			one.Lease = asks[member{d.Set.Name, d.Element}]
			if !slices.Contains([]string{setBook, setTaken4, setTaken6}, d.Set.Name) && len(d.Element.Key) >= 4 {
				one.Port = int(binary.NativeEndian.Uint32([]byte(d.Element.Key)))
			}
		}
		out = append(out, one)
	}
	slices.SortStableFunc(out, func(a, b Difference) int { return a.Port - b.Port })
	return out, nil
}
