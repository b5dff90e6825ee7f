package ipam

import (
	"cmp"
	"time"
)

// A Plug distinguishes the plumbing that a lease records from later plumbing of the same
// names: names are used again, and within one boot of the machine an index where a link came from
// another namespace with it, so that two that differ are two links, and two that
// are the same may be one.
type Plug struct {
	Boot  string `json:"boot"`            // the kernel's id of the boot
	Index int    `json:"index,omitempty"` // of the link HostInterface; 0: not known
	// At is when the link was found to be HostInterface's, or the one that it is behind, on CLOCK_BOOTTIME; 0: not
	// known. Of two sandboxes whose leases record one link, the later has it: it was passed on, or its index used again.
	At    time.Duration `json:"at,omitempty"`
	Inode uint64        `json:"inode,omitempty"` // of the namespace Netns; 0: not known
	// Unseen: nothing of it was on the pool's bridge when it was bound, and no witness has seen it
	// there since. That none sees it proves nothing then: it may live where none looks.
	Unseen bool `json:"unseen,omitempty"`
	// Unsaid is when the kernel, or the file system of the path, did not say in time which link or namespace a bind
	// names, on CLOCK_BOOTTIME; 0: it said so. What is 0 beside it may be there.
	Unsaid time.Duration `json:"unsaid,omitempty"`
	// Behind is the index of the link that a lease which names none was last seen behind; 0: of none.
	Behind int `json:"behind,omitempty"`
}

// Link is the index of the link that is recorded: HostInterface, or the one that a lease which names none is behind.
func (p Plug) Link() int { return cmp.Or(p.Index, p.Behind) }

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

// A HostName is the name of a link on the host, leased to one interface of one sandbox:
// no other has it while that interface has a lease, of any pool. It ends in the commit
// that ends the last of them, with the removal confirmed; and while a link of the name is
// there, no other gets it.
type HostName struct {
	Name      string
	UID       string // of the sandbox
	Interface string
	Rev       int64 // of the change of a lease with which it was given
}
