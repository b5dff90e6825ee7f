package ipam

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"strings"
	"time"
)

// A Lease is one row of the book: the present truth about one address. A
// *Lease that netdb returns is shared and immutable.
type Lease struct {
	Addr netip.Addr // of a delegated prefix the first one
	// PrefixLen is the length of the delegated prefix that begins at Addr; 0 for one address.
	PrefixLen int

	ID      string // UUIDv7; the fence that every change names; never reused
	PoolUID string // never changes
	Pool    string // the pool's name
	State   State

	Sandbox   string // opaque name, 1-253 bytes; "" only for a quarantined address
	UID       string // the sandbox's incarnation
	Interface string
	Attempt   int64

	Rev        int64         // the revision that last changed it
	Created    Stamp         // when this lease began
	Since      Stamp         // when it entered its state
	BindWithin time.Duration // how long it may stay reserved, from Since

	Containers    []Container
	Netns         string
	HostInterface string
	MAC           string
	Plug          Plug // which link and namespace these names were when they were recorded
	Labels        map[string]string

	Evidence json.RawMessage // what the witnesses reported, as a JSON array; stored, not interpreted
	Conflict json.RawMessage // the same of a conflict that stands on a held address, see netdb.Book.ConflictAt; nil while there is none
	Reason   string          // of the last change
	Cut      Cut             // of a lease that was given while its address cooled; "" of any other
	Hold     string          // an operator's words, when only an operator ends the quarantine
	Cooled   int64           // of a row that its pool took over from a removed pool, the revision at which it began to cool there; 0 of any other: see [Lease.CoolingRev]
}

// Owner returns the lease's owner.
func (l *Lease) Owner() Owner { return Owner{l.PoolUID, l.UID, l.Interface} }

// Former reports that a quarantined row is of a lease that was open in the book
// before a rebuild. Its id, owner and plumbing are what that book said, and its
// owner may have it back: see netdb.Book.Adopt.
func (l *Lease) Former() bool {
	return l.State == Quarantined && l.Reason == Rebuilt && l.Sandbox != ""
}

// CoolingRev is, of a row that cools, the revision at which it began to cool: that of its last change or,
// if it began in a pool that was removed, Cooled. In this order addresses are given again.
func (l *Lease) CoolingRev() int64 { return cmp.Or(l.Cooled, l.Rev) }

// A delegated prefix is leased as one address is: its row's address is the first one, and
// no other row lies in it, in whatever state.

// Prefix returns what is leased: the delegated prefix, or the address as a prefix of one.
func (l *Lease) Prefix() netip.Prefix {
	bits := l.PrefixLen
	if bits == 0 {
		bits = l.Addr.BitLen()
	}
	return netip.PrefixFrom(l.Addr, bits)
}

// Range returns the first and the last address that are leased.
func (l *Lease) Range() Range { return RangeOf(l.Addr, l.PrefixLen) }

// Covers reports whether an address is leased with this row.
func (l *Lease) Covers(a netip.Addr) bool {
	return l.Addr == a || l.PrefixLen != 0 && l.Prefix().Contains(a)
}

// Text is the address, or the delegated prefix as in 10.8.64.16/28.
func (l *Lease) Text() string { return TextOf(l.Addr, l.PrefixLen) }

// A Cut says why a cooldown was cut short. It is stored with the lease, so that a
// repeated answer has it too, and so that the rest of the cooldown is not
// forgotten with a lease that was never used.
type Cut string

const (
	CutEarly Cut = "early" // nothing else was left
	CutOwn   Cut = "own"   // the sandbox got its own last address back
)

// A Container names one container of a lease.
type Container struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
}

func (c Container) String() string { return c.Namespace + "/" + c.ID }

// Compare orders containers by their namespaces, and then by their ids.
func (c Container) Compare(o Container) int {
	return cmp.Or(strings.Compare(c.Namespace, o.Namespace), strings.Compare(c.ID, o.ID))
}

// Owner is the key on which an allocation is idempotent: one open lease per
// (pool, sandbox uid, interface). A pool has one family.
type Owner struct {
	PoolUID   string
	UID       string
	Interface string
}

// releaseWithin is how long a release may wait for its confirmation before a
// person is asked to look: one whose containers end is confirmed in seconds.
const releaseWithin = 30 * time.Second

// Stuck reports that a lease ought to have moved on: it is being released for
// longer than half a minute, or reserved and past its deadline.
func (l *Lease) Stuck(now Stamp) bool {
	switch l.State {
	case Releasing:
		return now.Since(l.Since) > releaseWithin
	case Reserved:
		return now.Since(l.Since) > l.BindWithin
	}
	return false
}
