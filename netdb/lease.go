package netdb

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/internal/ranges"
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
	Conflict json.RawMessage // the same of a conflict that stands on a held address, see [Book.ConflictAt]; nil while there is none
	Reason   string          // of the last change
	Cut      Cut             // of a lease that was given while its address cooled; "" of any other
	Hold     string          // an operator's words, when only an operator ends the quarantine
	Cooled   int64           // of a row that was taken over, the revision that made it cool; 0 of any other: see [Lease.CooledAt]
}

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

// Owner returns the lease's owner.
func (l *Lease) Owner() Owner { return Owner{l.PoolUID, l.UID, l.Interface} }

// Who says by whom and why a change is made. It is recorded with the change.
type Who struct {
	Actor  Actor
	Peer   string // the process behind it, for people: "uid=0 pid=4242"
	Reason string // lower_snake: "released", "expired", [SeenOnWire]
	Note   string // a person's words, at most [MaxNote] bytes; "" of a program
}

// A Subject is what a change is about.
type Subject string

const (
	OfLease   Subject = "lease"   // an address's move
	OfAttempt Subject = "attempt" // a sandbox uid's attempts up to this one were cancelled
	OfPool    Subject = "pool"
	OfBook    Subject = "book"
)

// A Change is one committed change, in the order of its revision.
type Change struct {
	Rev       int64
	At        Stamp
	Subject   Subject
	Addr      netip.Addr
	PrefixLen int // as of a [Lease]
	LeaseID   string
	PoolUID   string
	Pool      string
	Sandbox   string
	UID       string
	Interface string
	Attempt   int64
	From, To  State
	Who       Who
	Evidence  json.RawMessage
}

// A Plug distinguishes the plumbing that a lease records from later plumbing of the same
// names: names are used again, and within one boot of the machine an index where a link came from
// another namespace with it, so that two that differ are two links, and two that
// are the same may be one.
type Plug struct {
	Boot  string `json:"boot"`            // the kernel's id of the boot
	Index int    `json:"index,omitempty"` // of the link HostInterface; 0: not known
	// At is when the link was found to be HostInterface's, on CLOCK_BOOTTIME; 0: not known. Of two sandboxes
	// whose leases record one link, the later has it: it was passed on, or its index used again.
	At    time.Duration `json:"at,omitempty"`
	Inode uint64        `json:"inode,omitempty"` // of the namespace Netns; 0: not known
	// Unseen: nothing of it was on the pool's bridge when it was bound, and no witness has seen it
	// there since. That none sees it proves nothing then: it may live where none looks.
	Unseen bool `json:"unseen,omitempty"`
	// Behind is the index of the link that a lease which names none was last seen behind; 0: of none.
	Behind int `json:"behind,omitempty"`
}

// OfBoot reports whether it was recorded in a boot of the machine, of which the kernel's id or
// that of any of its eras is given. Links and namespaces of another boot are gone.
func (p Plug) OfBoot(id string) bool { return SameBoot(p.Boot, id) }

// OtherLink reports whether two leases that record a link of one name are known to
// record two links. While either is not known they may be one, and that it is a port
// concerns both.
func (p Plug) OtherLink(o Plug) bool {
	return p.Index != 0 && o.Index != 0 && (p.Index != o.Index || !p.OfBoot(o.Boot))
}

// OtherNetns is [Plug.OtherLink] of namespaces.
func (p Plug) OtherNetns(o Plug) bool {
	return p.Inode != 0 && o.Inode != 0 && (p.Inode != o.Inode || !p.OfBoot(o.Boot))
}

func (p Plug) text() string {
	if p == (Plug{}) {
		return ""
	}
	return encode(p, 1)
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
func (l *Lease) Range() Range { return rangeOf(l.Addr, l.PrefixLen) }

// Covers reports whether an address is leased with this row.
func (l *Lease) Covers(a netip.Addr) bool {
	return l.Addr == a || l.PrefixLen != 0 && l.Prefix().Contains(a)
}

// Text is the address, or the delegated prefix as in 10.8.64.16/28.
func (l *Lease) Text() string { return placeText(l.Addr, l.PrefixLen) }

func rangeOf(a netip.Addr, bits int) Range {
	if bits == 0 {
		return ranges.Between(a, a)
	}
	return ranges.Of(netip.PrefixFrom(a, bits))
}

// placeText writes an address, or with bits above 0 the prefix that begins there.
func placeText(a netip.Addr, bits int) string {
	if !a.IsValid() || bits == 0 {
		return AddrText(a)
	}
	return netip.PrefixFrom(a, bits).String()
}

// parsePlace reads what placeText writes.
func parsePlace(s string) (a netip.Addr, bits int, err error) {
	if !strings.Contains(s, "/") {
		a, err = netip.ParseAddr(s)
		return a, 0, err
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && (p != p.Masked() || p.IsSingleIP() || p.Bits() == 0) {
		err = fmt.Errorf("%q is no delegated prefix", s)
	}
	return p.Addr(), p.Bits(), err
}

// A Stamp is [elapsed.Stamp]. What deals with a book's times has it by this name, and the
// clocks by [Now]; package elapsed is for netdb alone.
type Stamp = elapsed.Stamp

// Now is [elapsed.Now]: the machine's clocks. What a book has recorded is compared with
// [Book.Now].
func Now() Stamp { return elapsed.Now() }

// SameBoot is [elapsed.SameBoot].
func SameBoot(a, b string) bool { return elapsed.SameBoot(a, b) }
