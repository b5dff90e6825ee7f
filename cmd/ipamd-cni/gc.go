package main

import (
	"context"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
)

// gc asks for the release of every lease of this network that the runtime does not name
// as an attachment. A runtime that names none at all, not an empty list, has said nothing of
// what is gone, and nothing is released.
func gc(args *skel.CmdArgs) error {
	c := readAnyway(args)
	if err := c.socketCannotBe(); err != nil {
		return err // asked again it would be the same
	}
	if err := c.attachments(args); err != nil || c.valid == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.wait+mostCall)
	defer cancel()
	ipamd := c.daemon()
	err := patiently(ctx, c.wait, func(ctx context.Context) error {
		all, err := ipamd.leases(ctx, "") // the conflist may have named another pool before
		if err != nil {
			return err
		}
		var stale []api.Lease
		for _, l := range all {
			if !c.collects(l) {
				continue
			}
			if c.main {
				if err := (owner{c.Name, l.Sandbox, l.Interface}).unplug(ctx); err != nil {
					return err
				}
			}
			stale = append(stale, l)
		}
		return release(ctx, ipamd, stale)
	})
	return refused(c, err)
}

// collects reports whether a lease is of this network, and of no attachment that its
// runtime knows.
func (c *config) collects(l api.Lease) bool {
	o := owner{c.Name, l.Sandbox, l.Interface}
	return isOpen(l) && l.UID == o.uid() && !c.valid[types.GCAttachment{ContainerID: o.container, IfName: o.ifname}]
}
