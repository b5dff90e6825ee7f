package main

import (
	"context"
	"fmt"
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
	var held []api.Lease
	err = patiently(ctx, c.wait, func(ctx context.Context) (err error) {
		held, err = o.open(ctx, c.client())
		return err
	})
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
	if c.main {
		return checkPlugged(ctx, c, args, held, before)
	}
	return nil
}
