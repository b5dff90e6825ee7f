package server

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// allocate answers 201 for a new lease and 200 for one that was there.
func (h *leases) allocate(c *call) (int, any, error) {
	var ask api.AllocateRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	c.sandbox, c.address = ask.Sandbox, ask.Address
	want := allocator.Request{
		Sandbox: ask.Sandbox, UID: ask.UID, Attempt: ask.Attempt, Pool: ask.Pool,
		Family: allocator.Family(ask.Family), Interface: ask.Interface, PrefixLen: ask.PrefixLength, HostName: ask.HostInterfaceName, Labels: ask.Labels, Peer: c.peer.Name,
	}
	var err error
	if ask.Address != "" {
		if want.Address, err = address("address", ask.Address); err != nil {
			return 0, nil, err
		}
	}
	if want.BindWithin, err = duration("bind_within", ask.BindWithin); err != nil {
		return 0, nil, err
	}
	if ask.Attach != nil {
		if ask.Attach.IfRevision != 0 {
			return 0, nil, field("attach.if_revision", "is of a lease that is there")
		}
		if err := h.ports.attachable(c, ask.Attach); err != nil {
			return 0, nil, within("attach", err)
		}
	}
	if ask.Netns != "" {
		if ask.Attach != nil || ask.Bind != nil {
			return 0, nil, field("netns", "is there beside attach or bind, which names the namespace itself")
		}
		if err := h.ports.checkNetns(c.ctx, ask.Netns); err != nil {
			return 0, nil, err
		}
	}
	if ask.Bind != nil {
		switch {
		case ask.Attach != nil:
			return 0, nil, field("bind", "is there beside attach, which binds by the port that it makes")
		case ask.Bind.IfRevision != 0:
			return 0, nil, field("bind.if_revision", "is of a lease that is there")
		}
		where := bindingOf(ask.Bind)
		want.Binding = &where
	}
	if ask.Warm != nil {
		if want.Warm, err = warmOf(&ask); err != nil {
			return 0, nil, err
		}
	}
	if want.Warm != nil && want.Warm.Wait > 0 { // it takes no other call's slot, nor its time
		c.endSlot()
		ctx, cancel := context.WithTimeout(c.r.Context(), want.Warm.Wait+h.deadline)
		defer cancel()
		defer context.AfterFunc(c.stopping(), cancel)()
		c.ctx = ctx // also of the port that is made where no slot came
	}
	given, err := h.allocator.Allocate(c.ctx, want)
	if err != nil {
		if ask.Bind != nil {
			err = ofBind(err)
		}
		return 0, nil, err
	}
	if ask.Attach != nil && given.Slot == nil { // a slot is plugged in
		if err := h.ports.attachGiven(c, given, ask.Attach); err != nil {
			return 0, nil, within("attach", err)
		}
	}
	reply := &api.AllocateReply{
		Leases:   make([]api.Lease, len(given.Leases)),
		Networks: make([]api.Network, len(given.Leases)),
		Existing: given.Existing, EarlyReuse: given.EarlyReuse,
		Skipped: skipped(given.Skipped), Claimed: skipped(given.Claimed), Unprobed: ipam.Texts(given.Unprobed),
		Revision: h.book.Rev(), Epoch: h.book.Epoch(),
	}
	if slot := given.Slot; slot != nil {
		reply.Slot = &api.GivenSlot{Slot: slot.ID, Netns: slot.Netns, SpecHash: slot.SpecHash, Stale: given.Stale}
	}
	for i, l := range given.Leases {
		pool := h.poolNow(given.Pools[i])
		reply.Leases[i] = h.wire(l, pool.Prefix.Bits())
		reply.Networks[i] = h.network(pool)
		if made, prefix, is := madeOf(given, l); is {
			reply.Leases[i], reply.Networks[i] = h.wire(l, prefix.Bits()), h.madeBy(made)
			reply.Networks[i].DNS = ipam.Texts(pool.DNS)
		}
	}
	for _, l := range given.Leases {
		if want.Binding != nil && l.Names(*want.Binding) {
			reply.Warnings = append(reply.Warnings, h.differs(c, l, *want.Binding)...)
		}
	}
	if given.Existing {
		return http.StatusOK, reply, nil
	}
	return http.StatusCreated, reply, nil
}

// madeOf is what the slot of a lease was made by, where its pool wants it otherwise by now: what is
// in its namespace is answered, and not what the next one will have.
func madeOf(given *allocator.Result, l *ipam.Lease) (made ipam.Plumbing, prefix netip.Prefix, is bool) {
	if !given.Stale || given.Slot == nil || given.Slot.LeaseID != l.ID {
		return made, prefix, false
	}
	made, err := given.Slot.Plumbing()
	if err == nil {
		prefix, err = netip.ParsePrefix(made.Prefix)
	}
	return made, prefix, err == nil
}

// ofBind names a field of a bind by where it is in the request.
func ofBind(err error) error {
	if wrong := new(ipam.FieldError); errors.As(err, &wrong) {
		name, _, _ := strings.Cut(wrong.Field, "[")
		if slices.Contains([]string{"containers", "gone", "netns", "host_interface", "mac"}, name) {
			return within("bind", err)
		}
	}
	return err
}

// within names a field by where it is in the request.
func within(where string, err error) error {
	if wrong := new(ipam.FieldError); errors.As(err, &wrong) {
		return &ipam.FieldError{Field: where + "." + wrong.Field, Reason: wrong.Reason}
	}
	return err
}
