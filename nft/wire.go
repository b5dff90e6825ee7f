package nft

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// mostElements is how many elements one message carries. A list is an attribute, whose
// length has sixteen bits, and an element takes some sixty bytes.
const mostElements = 400

// wire is what a rule does, in a form in which what was asked for and what was read back
// are equal: without the numbers that sets have inside one transaction, and what was counted.
func (r Rule) wire(f Family) []byte {
	var out []byte
	for _, e := range r.exprs() {
		switch v := e.(type) {
		case *expr.Lookup:
			c := *v
			c.SetID = 0
			e = &c
		case *expr.Dynset:
			c := *v
			c.SetID, c.Exprs = 0, nil
			for _, x := range v.Exprs {
				if _, counts := x.(*expr.Counter); counts {
					x = &expr.Counter{}
				}
				c.Exprs = append(c.Exprs, x)
			}
			e = &c
		case *expr.Counter:
			e = &expr.Counter{}
		}
		b, err := expr.Marshal(byte(f), e)
		if err != nil {
			return fmt.Appendf(nil, "%p: %v", e, err) // equal to nothing
		}
		out = append(out, b...)
	}
	return out
}

// A batch collects the messages of one transaction.
type batch struct {
	c     *nftables.Conn
	table *nftables.Table
	ids   uint32
	sets  map[string]uint32 // numbers of sets that are new in this transaction
}

func (b *batch) set(s *Set) *nftables.Set {
	out := &nftables.Set{Table: b.table, ID: b.sets[s.Name], Name: s.Name, KeyType: s.keyType(), Concatenation: len(s.Key) > 1,
		Interval: s.Interval, IsMap: s.Verdicts, Dynamic: s.Dynamic, HasTimeout: s.Dynamic && s.Timeout > 0, Timeout: s.Timeout, Size: s.Size}
	if s.Verdicts {
		out.DataType = nftables.TypeVerdict
	}
	if k := out.KeyType; k == nftables.TypeIFIndex || k == nftables.TypeMark {
		out.KeyByteOrder = binaryutil.NativeEndian // so that nft lists them
	}
	return out
}

func (b *batch) addSet(s *Set) error {
	if b.sets == nil {
		b.sets = map[string]uint32{}
	}
	b.ids++
	b.sets[s.Name] = b.ids
	return b.c.AddSet(b.set(s), nil)
}

func (b *batch) edit(e Edit) error {
	s := b.set(e.Set)
	for list := e.Del; len(list) > 0; {
		n := min(len(list), mostElements)
		if err := b.c.SetDeleteElements(s, wireElements(e.Set, list[:n], false)); err != nil {
			return err
		}
		list = list[n:]
	}
	for list := e.Add; len(list) > 0; {
		n := min(len(list), mostElements)
		if err := b.c.SetAddElements(s, wireElements(e.Set, list[:n], true)); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

func wireElements(s *Set, list []Element, all bool) []nftables.SetElement {
	out := make([]nftables.SetElement, len(list))
	for i, e := range list {
		out[i].Key = raw(s.Key, e.Key)
		if s.Interval {
			out[i].KeyEnd = raw(s.Key, e.End)
		}
		if !all {
			continue
		}
		out[i].Comment = e.Comment
		if s.Verdicts {
			out[i].VerdictData = &expr.Verdict{Kind: e.Verdict.Kind, Chain: e.Verdict.Chain}
		}
	}
	return out
}

func (b *batch) chain(c *Chain) *nftables.Chain {
	out := &nftables.Chain{Table: b.table, Name: c.Name}
	if c.Base != nil {
		accept := nftables.ChainPolicyAccept
		out.Type, out.Policy = nftables.ChainTypeFilter, &accept
		out.Hooknum, out.Priority, out.Device = nftables.ChainHookRef(c.Base.Hook), nftables.ChainPriorityRef(nftables.ChainPriority(c.Base.Priority)), c.Base.Device
	}
	return out
}

func (b *batch) rules(c *Chain) {
	for _, r := range c.Rules {
		exprs := r.exprs()
		for i, e := range exprs {
			exprs[i] = b.numbered(e)
		}
		var comment []byte
		if r.Why != "" {
			comment = userdata.AppendString(nil, userdata.TypeComment, r.Why)
		}
		b.c.AddRule(&nftables.Rule{Table: b.table, Chain: &nftables.Chain{Name: c.Name}, Exprs: exprs, UserData: comment})
	}
}

// numbered gives a statement the number of its set where that is new.
func (b *batch) numbered(e expr.Any) expr.Any {
	switch v := e.(type) {
	case *expr.Lookup:
		c := *v
		c.SetID = b.sets[c.SetName]
		return &c
	case *expr.Dynset:
		c := *v
		c.SetID = b.sets[c.SetName]
		return &c
	}
	return e
}

// write puts a change into the batch. Rules are deleted before the chains and sets that they name, and added
// after them. A chain that an element of a map jumps to, and that ends, is refused by the kernel: none of our maps does.
func (b *batch) write(c *change, there bool) error {
	if c.table {
		if there {
			b.c.DelTable(b.table)
		}
		b.c.CreateTable(b.table)
	}
	if c.wakes {
		b.c.AddTable(b.table) // which sets its flags to none
	}
	for _, ch := range c.accepts {
		b.c.AddChain(b.chain(ch))
	}
	for _, s := range c.sets {
		if err := b.addSet(s); err != nil {
			return err
		}
	}
	for _, ch := range c.chains {
		if ch.Base == nil {
			b.c.AddChain(b.chain(ch))
		}
	}
	for _, ch := range c.chains {
		if ch.Base != nil {
			b.c.AddChain(b.chain(ch))
		}
	}
	for _, ch := range c.ends {
		b.c.FlushChain(b.chain(ch))
	}
	for _, ch := range c.rules {
		if !c.table {
			b.c.FlushChain(b.chain(ch))
		}
	}
	for _, ch := range c.rules {
		b.rules(ch)
	}
	for _, ch := range c.ends {
		b.c.DelChain(b.chain(ch))
	}
	for _, s := range c.sets { // an element of a map names a chain
		if err := b.edit(Edit{Set: s, Add: s.Elements}); err != nil {
			return err
		}
	}
	for _, e := range c.elements {
		if err := b.edit(e); err != nil {
			return err
		}
	}
	for _, s := range c.endSets {
		b.c.DelSet(b.set(s))
	}
	return nil
}
