package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

// idLeast is the shortest part of an id that names a lease.
const idLeast = 4

// leaseNamed returns the id of the lease that a person names: by the whole id, or
// by a beginning or an end of it that no other lease has. An address and a sandbox
// are refused: a verb that took one could hit the next owner. What names no lease
// of now is returned as it is, for the daemon to judge. Of one that names a sandbox the hint is
// what the caller may do instead, and the command for it up to that name.
func (c *ctl) leaseNamed(ctx context.Context, ipamd *client.Client, arg, instead string) (id string, err error) {
	defer func() { c.about.lease = id }()
	if _, err := netip.ParseAddr(arg); err == nil {
		return "", usageError{
			message: fmt.Sprintf("%s is an address; this verb names a lease by its id", arg),
			hint:    "who holds the address, and under which lease: ipamctl whois " + arg,
		}
	}
	if looksLikeLease(arg) {
		return arg, nil
	}
	list, err := ipamd.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		return "", err
	}
	switch found := withID(list.Leases, arg); {
	case len(found) == 1:
		return found[0].ID, nil
	case len(found) > 1:
		return "", usageError{
			message: fmt.Sprintf("%s is a part of the ids of %s", term.Word(arg), term.Plural(len(found), "lease")),
			hint:    "the whole ids: ipamctl leases -o wide",
		}
	}
	for _, l := range list.Leases {
		if l.Sandbox == arg {
			return "", usageError{
				message: fmt.Sprintf("%s is a sandbox; this verb names a lease by its id", term.Word(arg)),
				hint:    instead + term.Word(arg),
			}
		}
	}
	return arg, nil
}

// itsLeases is what to do instead of naming a sandbox where a lease is to be named: see leaseNamed.
const itsLeases = "its leases: ipamctl show "

// onLease is a verb on the lease that a person names; it answers with the lease.
func (c *ctl) onLease(cmd *cobra.Command, name string, do func(_ context.Context, _ *client.Client, id string) (*api.LeaseReply, error)) error {
	ctx, cancel, ipamd := c.call(cmd, 0)
	defer cancel()
	id, err := c.leaseNamed(ctx, ipamd, name, itsLeases)
	if err != nil {
		return err
	}
	reply, err := do(ctx, ipamd, id)
	if err != nil {
		return err
	}
	return c.answer(reply, []string{reply.Lease.ID}, func(p *page) {
		p.drawLease(&reply.Lease)
		p.drawWarnings(reply.Warnings)
	})
}

// onAddress is a verb on one address; it answers with the lease that holds it, and -q
// prints what id takes from that.
func (c *ctl) onAddress(cmd *cobra.Command, name string, id func(*api.Lease) string, do func(_ context.Context, _ *client.Client, addr string) (*api.LeaseReply, error)) error {
	addr, err := anAddress(name)
	if err != nil {
		return err
	}
	c.about.address = addr
	ctx, cancel, ipamd := c.call(cmd, 0)
	defer cancel()
	reply, err := do(ctx, ipamd, addr)
	if err != nil {
		return err
	}
	return c.answer(reply, []string{id(&reply.Lease)}, func(p *page) { p.drawLease(&reply.Lease) })
}

// withID returns the leases whose id begins or ends with a part.
func withID(leases []api.Lease, part string) (found []api.Lease) {
	part = strings.ToLower(part)
	if len(part) < idLeast {
		return nil
	}
	for _, l := range leases {
		if strings.HasPrefix(l.ID, part) || strings.HasSuffix(l.ID, part) {
			found = append(found, l)
		}
	}
	return found
}

// shortIDs returns the shortest ends of the ids that differ for each lease, all of
// one length.
func shortIDs(leases []api.Lease) []string {
	short := make([]string, len(leases))
	for n := 8; ; n += 4 {
		seen := make(map[string]bool)
		for i, l := range leases {
			short[i] = l.ID[max(len(l.ID)-n, 0):]
			seen[short[i]] = true
		}
		if len(seen) == len(leases) || n > len(leases[0].ID) {
			return short
		}
	}
}
