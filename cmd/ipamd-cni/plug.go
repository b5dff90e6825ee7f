package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/plumb"
)

// As a main plugin ipamd makes the port itself. Whose port it is follows from the same as
// whose lease it is, so that DEL finds it without the daemon and without a namespace.

// plug is whose port plumb makes.
func (o owner) plug() string { return o.uid() + "/" + o.ifname }

// unplug takes an owner's port away; one that is not there is no error, and another's link by its
// name stays and is none either.
func (o owner) unplug(ctx context.Context) error {
	err := plumb.Remove(ctx, plumb.HostName(o.plug()), o.plug())
	if errors.Is(err, plumb.ErrTaken) {
		fmt.Fprintf(os.Stderr, "ipamd: the port of %s of %s is not there: %v\n", o.ifname, o.container, err)
		return nil
	}
	return err
}

// ends is the port of an owner without what its leases say, and with the MAC that the runtime wants.
func (o owner) ends(c *config, args *skel.CmdArgs, a podArgs) (plumb.Spec, error) {
	s := plumb.Spec{Owner: o.plug(), Host: plumb.HostName(o.plug()), Netns: args.Netns, Guest: o.ifname}
	for _, wanted := range []struct {
		from source
		mac  string
	}{{keyed("runtimeConfig.mac"), c.RuntimeConfig.MAC}, {variable("MAC of CNI_ARGS"), string(a.MAC)}} {
		if wanted.mac == "" {
			continue
		}
		mac, err := net.ParseMAC(wanted.mac)
		if err != nil || len(mac) != 6 {
			return s, wanted.from.wrong("is " + wanted.mac + ", which is no MAC")
		}
		s.MAC, c.macFrom = mac, wanted.from
		break
	}
	return s, nil
}

// fits reports why the port of an ADD cannot be made, as far as that is known before its addresses.
func (c *config) fits(ctx context.Context, ends plumb.Spec, asks []api.AllocateRequest) error {
	noIPv6, err := plumb.Fits(ctx, ends)
	if noIPv6 == nil {
		return err
	}
	for _, ask := range asks {
		switch ask.Family {
		case api.V6, api.Dual:
			return noIPv6
		case "": // IPv4 where the pool has it
			pools, unread := c.daemon().pools(ctx)
			if unread == nil && !slices.ContainsFunc(c.ofPool(pools), func(p api.Pool) bool { return p.Family == api.V4 }) {
				return noIPv6
			}
		}
	}
	return nil
}

// spec describes the port of an owner's leases.
func (o owner) spec(leases []api.Lease, networks []api.Network, netns string) (plumb.Spec, error) {
	s, err := plumb.Describe(leases, networks)
	if err != nil {
		return s, err
	}
	s.Owner, s.Host, s.Netns = o.plug(), plumb.HostName(o.plug()), netns
	s.MAC = plumb.AddressMAC(s.Addresses[0].Addr())
	for _, l := range leases { // the second family changes nothing of an interface that is there
		if mac, err := net.ParseMAC(l.MAC); err == nil && l.Netns == netns {
			s.MAC = mac
			break
		}
	}
	return s, nil
}

// answerPlugged makes the port, binds its leases and prints the result: all of it, or
// nothing is left of what this ADD began. A port that was there before stays, whichever
// leases this ADD has made.
func (g *given) answerPlugged(ctx context.Context, c *config, args *skel.CmdArgs, ends plumb.Spec, r *types100.Result) error {
	s, err := g.owner.spec(g.leases, g.networks, args.Netns)
	if err == nil {
		if ends.MAC != nil {
			s.MAC = ends.MAC
		}
		err = g.answerPort(ctx, c, args, s, r)
	}
	if err != nil {
		g.undo()
	}
	return plugError(c, err)
}

func (g *given) answerPort(ctx context.Context, c *config, args *skel.CmdArgs, s plumb.Spec, r *types100.Result) (err error) {
	p, err := plumb.Make(ctx, s)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && p.Made {
			_ = plumb.Remove(context.WithoutCancel(ctx), s.Host, s.Owner)
		}
	}()
	if err := g.bind(ctx, c, args, port{mac: p.MAC.String(), host: p.Host, index: p.HostIndex, bridge: s.Bridge}); err != nil {
		return err
	}
	if err := plumb.Announce(ctx, s); err != nil {
		return err
	}
	r.Interfaces = []*types100.Interface{{Name: s.Bridge}, {Name: p.Host, Mac: plumb.HostMAC(s.Owner).String()},
		{Name: s.Guest, Mac: p.MAC.String(), Sandbox: args.Netns}}
	for _, ip := range r.IPs {
		ip.Interface = types100.Int(2)
	}
	return types.PrintResult(r, c.CNIVersion)
}

// checkPlugged compares the port with what the leases say, and with the routes of the ADD.
func checkPlugged(ctx context.Context, c *config, args *skel.CmdArgs, held []api.Lease, before *types100.Result, pools []api.Pool) error {
	o := ownerOf(c, args)
	asAdded := 0 // ADD gave both ends one; the pool may say another since
	if host, err := net.InterfaceByName(plumb.HostName(o.plug())); err == nil {
		asAdded = host.MTU
	}
	var networks []api.Network
	for _, l := range held {
		for _, p := range pools {
			if p.UID == l.PoolUID {
				networks = append(networks, api.Network{Bridge: p.Bridge, MTU: cmp.Or(asAdded, p.MTU)})
			}
		}
	}
	s, err := o.spec(held, networks, args.Netns)
	if err != nil {
		return types.NewError(codeLost, err.Error(), "")
	}
	if s.MAC, err = net.ParseMAC(held[0].MAC); err != nil {
		return types.NewError(codeLost, "the lease of "+held[0].Address+" has no MAC: ADD did not end", "")
	}
	for _, r := range before.Routes {
		to, _ := netip.ParsePrefix(r.Dst.String())
		via, _ := netip.AddrFromSlice(r.GW)
		s.Routes = append(s.Routes, plumb.Route{To: to, Via: via.Unmap()})
	}
	diffs, err := plumb.Check(ctx, s)
	if err != nil {
		return plugError(c, err)
	}
	if len(diffs) > 0 {
		return types.NewError(codeLost, o.ifname+" of container "+o.container+": "+diffs[0].String(), "")
	}
	return nil
}

// plugError is an error of the port as the protocol has it, with the field named.
func plugError(c *config, err error) error {
	e, field := new(types.Error), new(plumb.FieldError)
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	case !errors.As(err, &field):
		return types.NewError(types.ErrInternal, err.Error(), "")
	case field.Field == "netns":
		return types.NewError(unlessTaken(err, types.ErrInvalidNetNS), "CNI_NETNS: "+err.Error(), "")
	case field.Field == "guest":
		return types.NewError(unlessTaken(err, types.ErrInvalidEnvironmentVariables), "CNI_IFNAME: "+err.Error(), "")
	case field.Field == "mac" && c.macFrom != (source{}):
		return c.macFrom.wrong("is no MAC that a port can have: " + err.Error())
	case field.Field == "bridge":
		return types.NewError(types.ErrInvalidNetworkConfig, c.key("pool")+": "+err.Error(), "")
	}
	return types.NewError(codeRefused, err.Error(), "")
}

// unlessTaken is the code of what is wrong by itself, and not because another has it.
func unlessTaken(err error, wrong uint) uint {
	if errors.Is(err, plumb.ErrTaken) {
		return codeRefused
	}
	return wrong
}
