package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ipamd/ipamd/api"
)

// check compares what the runtime remembers of an ADD with the book.
func check(args *skel.CmdArgs) error {
	c, err := read(args)
	if err != nil || c.listed && !c.main {
		return err
	}
	if err := version.ParsePrevResult(&c.NetConf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult: "+err.Error(), "")
	}
	if c.PrevResult == nil {
		return wrong("prevResult", "is missing")
	}
	before, err := types100.NewResultFromResult(c.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult: "+err.Error(), "")
	}
	o := ownerOf(c, args)
	ctx, cancel := context.WithTimeout(context.Background(), c.wait+mostCall)
	defer cancel()
	ipamd := c.daemon()
	held, err := o.holds(ctx, c, ipamd)
	if err != nil {
		return refused(c, err)
	}
	if len(held) == 0 {
		return types.NewError(codeLost, fmt.Sprintf("%s of container %s holds no lease in network %s", o.ifname, o.container, o.network), "")
	}
	for _, l := range held {
		has := func(ip *types100.IPConfig) bool { return ip.Address.IP.String() == l.Address }
		if !slices.ContainsFunc(before.IPs, has) {
			return types.NewError(codeLost, fmt.Sprintf("%s of container %s holds %s, which prevResult does not have", o.ifname, o.container, l.Address), "")
		}
		if len(l.Conflict) > 0 {
			return types.NewError(codeLost, fmt.Sprintf("%s is held by %s of container %s, and is seen under another, too: `ipamctl whois %s` shows it", l.Address, o.ifname, o.container, l.Address), "")
		}
	}
	pools, err := ipamd.pools(ctx)
	if err != nil {
		return refused(c, err)
	}
	for _, ip := range before.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		if a = a.Unmap(); c.has(pools, a) && !slices.ContainsFunc(held, func(l api.Lease) bool { return l.Address == a.String() }) {
			return types.NewError(codeLost, fmt.Sprintf("%s of container %s holds no lease of %s, which prevResult has", o.ifname, o.container, a), "")
		}
	}
	if c.main {
		return checkPlugged(ctx, c, args, held, before, pools)
	}
	return nil
}

// has reports whether an address is of the network's pool; others of a result are other plugins'.
func (c *config) has(pools []api.Pool, a netip.Addr) bool {
	return slices.ContainsFunc(c.ofPool(pools), func(p api.Pool) bool {
		prefix, err := netip.ParsePrefix(p.Prefix)
		return err == nil && prefix.Contains(a)
	})
}
