package nft

import "slices"

// A Differing is one thing by which a table in the kernel is not the one that it should be.
// An Element of a Set that is missing or too much; or, without a Set, What says in words
// what is not as it should be.
type Differing struct {
	Set     *Set // nil: What
	Element Element
	Missing bool // it should be there; else it is there and should not be
	What    string
}

// Compare lists by what a table that was read differs from the one that it should be; of each set what is
// missing comes first. A table that is not there differs by that alone.
func Compare(have, want *Table) (out []Differing) {
	if have == nil {
		return []Differing{{What: "the table is not there", Missing: true}}
	}
	c := difference(have, want)
	if c.table {
		return []Differing{{What: "the table has a set or a chain of another kind"}}
	}
	say := func(what string, missing bool) { out = append(out, Differing{What: what, Missing: missing}) }
	if c.wakes {
		say("the table is dormant: none of its chains runs", false)
	}
	for _, ch := range c.accepts {
		say("chain "+ch.Name+" has the policy to drop", false)
	}
	for _, s := range c.sets {
		say("set "+s.Name+" is not there", true)
	}
	for _, ch := range c.rules {
		if slices.Contains(c.chains, ch) {
			say("chain "+ch.Name+" is not there", true)
		} else {
			say("chain "+ch.Name+" has other rules", false)
		}
	}
	for _, ch := range c.ends {
		say("chain "+ch.Name+" is too much", false)
	}
	for _, s := range c.endSets {
		say("set "+s.Name+" is too much", false)
	}
	for _, e := range c.elements {
		for _, one := range e.Add {
			out = append(out, Differing{Set: e.Set, Element: one, Missing: true})
		}
		for _, one := range e.Del {
			out = append(out, Differing{Set: e.Set, Element: one})
		}
	}
	return out
}
