package nft

import "bytes"

// A change is what makes one table of another.
type change struct {
	table    bool     // made anew as a whole: what a chain or a set is cannot be changed
	wakes    bool     // the table is dormant
	accepts  []*Chain // whose policy is to drop
	sets     []*Set   // added, with their elements
	chains   []*Chain // added
	rules    []*Chain // whose rules are replaced
	elements []Edit
	ends     []*Chain // taken away
	endSets  []*Set
}

func (c *change) empty() bool {
	return !c.table && !c.wakes && len(c.accepts)+len(c.sets)+len(c.chains)+len(c.rules)+len(c.elements)+len(c.ends)+len(c.endSets) == 0
}

// An Edit changes elements of one set: first Del, then Add. To add what is there changes
// nothing; to delete what is not there fails, and nothing of the transaction is done.
type Edit struct {
	Set      *Set // of which Name, Key, Verdicts and Interval count
	Del, Add []Element
}

// difference compares what is there, or nil, with what should be.
func difference(have, want *Table) *change {
	if have == nil {
		return whole(want)
	}
	c := &change{wakes: have.Dormant}
	for _, w := range want.Sets {
		switch h := have.Set(w.Name); {
		case h == nil:
			c.sets = append(c.sets, w)
		case !h.alike(w):
			return whole(want)
		case !w.Dynamic:
			if e := editOf(h, w); len(e.Add)+len(e.Del) > 0 {
				c.elements = append(c.elements, e)
			}
		}
	}
	for _, w := range want.Chains {
		switch h := have.Chain(w.Name); {
		case h == nil:
			c.chains, c.rules = append(c.chains, w), append(c.rules, w)
		case !h.Base.alike(w.Base):
			return whole(want)
		case !sameRules(want.Family, h.Rules, w.Rules):
			c.rules = append(c.rules, w)
		}
		if h := have.Chain(w.Name); h != nil && h.Base != nil && h.Base.Drops {
			c.accepts = append(c.accepts, w)
		}
	}
	for _, h := range have.Chains {
		if want.Chain(h.Name) == nil {
			c.ends = append(c.ends, h)
		}
	}
	for _, h := range have.Sets {
		if want.Set(h.Name) == nil {
			c.endSets = append(c.endSets, h)
		}
	}
	return c
}

func whole(want *Table) *change {
	return &change{table: true, sets: want.Sets, chains: want.Chains, rules: want.Chains}
}

func (s *Set) alike(o *Set) bool {
	return s.keyType().Bytes == o.keyType().Bytes && s.Verdicts == o.Verdicts && s.Interval == o.Interval &&
		s.Dynamic == o.Dynamic && s.Timeout == o.Timeout && s.Size == o.Size
}

func (b *Base) alike(o *Base) bool {
	if b == nil || o == nil {
		return b == o
	}
	return b.Hook == o.Hook && b.Priority == o.Priority
}

func editOf(have, want *Set) Edit {
	e := Edit{Set: want}
	there := make(map[key]Element, len(have.Elements))
	for _, h := range have.Elements {
		there[h.key()] = h
	}
	for _, w := range want.Elements {
		h, ok := there[w.key()]
		if ok && h.same(w, want.Verdicts) {
			delete(there, w.key())
			continue
		}
		e.Add = append(e.Add, w)
	}
	for _, h := range have.Elements {
		if _, over := there[h.key()]; over {
			e.Del = append(e.Del, h)
		}
	}
	return e
}

func sameRules(f Family, have, want []Rule) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		if have[i].Why != want[i].Why || !bytes.Equal(have[i].wire(f), want[i].wire(f)) {
			return false
		}
	}
	return true
}

// Same reports whether two tables are one, whatever dynamic sets hold.
func Same(a, b *Table) bool {
	if a == nil || b == nil {
		return a == b
	}
	return difference(a, b).empty()
}
