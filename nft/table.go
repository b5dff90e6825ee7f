package nft

import (
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// A Family says which packets a table sees.
type Family = nftables.TableFamily

const (
	Bridge Family = nftables.TableFamilyBridge // what passes a bridge
	Netdev Family = nftables.TableFamilyNetdev // what enters or leaves one device
)

// A Hook is where on a packet's way a base chain runs.
type Hook = nftables.ChainHook

var (
	Prerouting  = *nftables.ChainHookPrerouting
	Input       = *nftables.ChainHookInput
	Forward     = *nftables.ChainHookForward
	Output      = *nftables.ChainHookOutput
	Postrouting = *nftables.ChainHookPostrouting
	Egress      = *nftables.ChainHookEgress // Netdev only
)

// A Table is everything that one table has. Names are unique among its chains, and among
// its sets.
type Table struct {
	Family Family
	Name   string
	Sets   []*Set
	Chains []*Chain
	// Dormant says of a table that was read that the kernel runs none of its chains. One that
	// is wanted is not.
	Dormant bool
}

// Set returns the set of that name, or nil.
func (t *Table) Set(name string) *Set {
	for _, s := range t.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Chain returns the chain of that name, or nil.
func (t *Table) Chain(name string) *Chain {
	for _, c := range t.Chains {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// A Chain is a list of rules. With a Base the kernel runs it, else other chains do. Its
// policy is always to accept: a table that is being taken down drops nothing.
type Chain struct {
	Name  string
	Base  *Base
	Rules []Rule
}

// A Base is where a chain is run.
type Base struct {
	Hook     Hook
	Priority int32
	Device   string // Netdev only; not read back, so name the chain by it, and by its index: a name goes to another device
	Drops    bool   // policy drop, of one that was read; one that is wanted accepts
}

// A Rule is statements in order. Why is kept in the kernel as the rule's comment, at most
// 127 bytes.
type Rule struct {
	Why string
	Do  []Statement
}

// A Set is a set of keys, or a map to verdicts. What Dynamic rules add to it is theirs:
// its elements are neither compared nor changed by [Conn.Apply].
type Set struct {
	Name     string
	Key      []Type
	Verdicts bool          // a map from keys to verdicts
	Interval bool          // elements are ranges; see check; of IPv6, prefixes only
	Dynamic  bool          // rules add elements
	Timeout  time.Duration // of the elements that rules add; 0 is never
	Size     uint32        // most elements; 0 is no bound
	Elements []Element
}

// An Element is a key as the kernel has it, built by [Key] from values of the set's types.
// It is comparable.
type Element struct {
	Key     string
	End     string  // of a range: its last key
	Verdict Verdict // of a map
	Comment string  // at most 127 bytes
}

// A Verdict is what becomes of a packet.
type Verdict struct {
	Kind  expr.VerdictKind
	Chain string // of a jump or goto
}

// same reports whether two elements with one key are one element.
func (e Element) same(o Element, verdicts bool) bool {
	return e.Comment == o.Comment && (!verdicts || e.Verdict == o.Verdict)
}

type key struct{ first, last string }

func (e Element) key() key { return key{e.Key, e.End} }
