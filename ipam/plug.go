package ipam

import (
	"cmp"
	"time"
)

// A Plug identifies the link and the namespace that the names of a lease's plumbing stood for when they were
// resolved. Names are used again. So is the index of a link, within one boot of the machine: a link that
// comes from another namespace may keep the index that it has there. So two different indices are two links, and
// two that are the same may be one link, or two links one after the other.
type Plug struct {
	Boot  string `json:"boot"`            // the kernel's id of the boot in which the names were resolved
	Index int    `json:"index,omitempty"` // of the link HostInterface; 0: not known
	// At is when the link, of Index or of Behind, was found to be this lease's, on CLOCK_BOOTTIME; 0: not known.
	// Of two sandboxes whose leases record one link, the later has it: it was passed on, or its index is used again.
	At    time.Duration `json:"at,omitempty"`
	Inode uint64        `json:"inode,omitempty"` // of the namespace Netns; 0: not known
	// Unseen: nothing of the lease was on its pool's bridge when it was bound, and no witness has seen it
	// there since. Then it proves nothing that no witness sees it: its sandbox may be where none looks.
	Unseen bool `json:"unseen,omitempty"`
	// Unsaid is when it was first tried in vain to resolve the names, because the kernel, or the file system of the
	// path, did not answer in time; on CLOCK_BOOTTIME. 0: they did answer. Beside it, an Index or Inode of 0 does
	// not say that there is no such link or namespace.
	Unsaid time.Duration `json:"unsaid,omitempty"`
	// Behind is the index of the port behind which a lease that names no host interface was last seen; 0: none.
	Behind int `json:"behind,omitempty"`
}

// Link is the index of the link that is recorded: HostInterface, or the one that a lease which names none is behind.
func (p Plug) Link() int { return cmp.Or(p.Index, p.Behind) }

// OfBoot reports whether the names were resolved in a boot of the machine. id is the kernel's of that boot, or
// that of a [Stamp] in it. Links and namespaces of another boot are gone.
func (p Plug) OfBoot(id string) bool { return SameBoot(p.Boot, id) }

// OtherLink reports whether two leases that record one name of a link are known to mean two
// links. While the link of either is not known, the two may be one.
func (p Plug) OtherLink(o Plug) bool {
	return p.Index != 0 && o.Index != 0 && (p.Index != o.Index || !p.OfBoot(o.Boot))
}

// OtherNetns is [Plug.OtherLink] for namespaces.
func (p Plug) OtherNetns(o Plug) bool {
	return p.Inode != 0 && o.Inode != 0 && (p.Inode != o.Inode || !p.OfBoot(o.Boot))
}

// A HostName is the name of a link on the host, leased to one interface of one sandbox: no other
// interface gets it while that one has a lease, of any pool. It ends in the commit that ends the
// last of these leases, with the removal confirmed. While a link on the host has the name, no
// other interface gets it either.
type HostName struct {
	Name      string
	UID       string // of the sandbox
	Interface string
	Rev       int64 // of the change of a lease with which it was given
}
