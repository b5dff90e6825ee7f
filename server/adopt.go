package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// adopt gives a quarantined address to the sandbox that an operator names. What the
// request leaves out is taken from the row, where a rebuild keeps the former lease.
// Nothing that a witness sees may contradict it.
func (h *addresses) adopt(c *call) (int, any, error) {
	var ask api.AdoptRequest
	return h.onAddress(c, &ask, func(addr netip.Addr) (*ipam.Lease, error) {
		if ask.Reason == "" || len(ask.Reason) > ipam.MaxNote {
			return nil, field("reason", "wants 1 to %d bytes: say why, for the history", ipam.MaxNote)
		}
		row, err := h.quarantined("adopt", addr)
		if err != nil {
			return nil, err
		}
		a, err := h.adoption(row, ask)
		if err != nil {
			return nil, err
		}
		seen := h.witnesses.About(addr)
		if err := h.backed(&a, seen); err != nil {
			return nil, err
		}
		a.Evidence = marshal(seen.Seen)
		l, err := h.book.Adopt(c.ctx, c.operator("adopted_by_hand", ask.Reason), a)
		if owned, is := errors.AsType[*ipam.OwnedError](err); is {
			return nil, fmt.Errorf("adopt %s: %w: sandbox %q holds %s on %s (lease %s)", addr, ipam.ErrState, a.Sandbox, owned.Lease.Addr, a.Interface, owned.Lease.ID)
		}
		return l, err
	})
}

// adoption is what is asked for, completed from the row. A lease id that is
// another row's, or that has ended, is refused rather than replaced.
func (h *addresses) adoption(row *ipam.Lease, ask api.AdoptRequest) (ipam.Adoption, error) {
	a := ipam.Adoption{Addr: row.Addr, Rev: row.Rev, ID: ask.LeaseID, Interface: ask.Interface,
		Sandbox: cmp.Or(ask.Sandbox, row.Sandbox), UID: ask.UID,
		Binding: ipam.Binding{Containers: containers(ask.Containers), Netns: ask.Netns, HostInterface: ask.HostInterface, MAC: ask.MAC}}
	if a.Sandbox == "" {
		return a, field("sandbox", "is empty, and the quarantine names none")
	}
	if row.Former() && a.Sandbox == row.Sandbox && (a.UID == "" || a.UID == row.UID) && (a.Interface == "" || a.Interface == row.Interface) && (a.ID == "" || a.ID == row.ID) {
		a.ID, a.UID, a.Interface = row.ID, row.UID, row.Interface
		if len(a.Containers) == 0 {
			a.Containers = row.Containers
		}
		a.Netns, a.HostInterface, a.MAC = cmp.Or(a.Netns, row.Netns), cmp.Or(a.HostInterface, row.HostInterface), cmp.Or(a.MAC, row.MAC)
	}
	a.Interface = cmp.Or(a.Interface, allocator.DefaultInterface)
	if !placeless(a.Binding) {
		if err := a.Binding.Check(); err != nil {
			return a, err
		}
	}
	if a.ID == "" || a.ID == row.ID {
		return a, nil
	}
	other, err := h.book.Lease(a.ID)
	switch {
	case err == nil:
		return a, fmt.Errorf("adopt %s: %w: lease %s is that of %s", row.Addr, ipam.ErrState, a.ID, other.Addr)
	case !errors.Is(err, ipam.ErrNotFound):
		return a, fmt.Errorf("adopt %s: %w", row.Addr, err)
	}
	return a, nil
}

// backed refuses an adoption that a witness contradicts, and completes one that
// names no place from the one port that shows the address.
func (h *addresses) backed(a *ipam.Adoption, answer census.Answer) error {
	if silent, is := answer.KernelSilent(); is {
		return &allocator.EvidenceError{Silent: []census.Silence{silent}}
	}
	named := &ipam.Lease{Addr: a.Addr, ID: a.ID, Sandbox: a.Sandbox, UID: cmp.Or(a.UID, a.Sandbox), Containers: a.Containers,
		HostInterface: a.HostInterface, MAC: a.MAC}
	rows, _ := h.book.Leases()
	if leases := workload.NewLeases(rows); !leases.Backed(named, answer.Seen) {
		others := leases.Strangers(named, answer.Seen)
		if len(others) == 0 {
			others = answer.Seen // on several ports
		}
		return &seenError{"adopt", ipam.ErrTaken, others}
	}
	if placeless(a.Binding) {
		for _, w := range answer.Seen {
			if w.Witness == census.Netns {
				a.HostInterface, a.MAC = w.Port, w.MAC
			}
		}
	}
	return nil
}

// placeless reports whether a binding says nothing.
func placeless(b ipam.Binding) bool {
	return len(b.Containers) == 0 && b.Netns == "" && b.HostInterface == "" && b.MAC == ""
}
