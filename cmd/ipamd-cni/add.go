package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/plumb"
)

// bindWithin is the least time that a lease stays without its bind, which follows at once: a plugin
// that is killed between the two leaves a lease that ends by itself. It stays as long as an ADD may
// last: of two addresses the first is bound once the second is there, too.
const bindWithin = time.Minute

// mostCall bounds the calls of an ADD beyond its wait.
const mostCall = 30 * time.Second

// add answers with the addresses of an interface. Asked again it answers the same.
func add(args *skel.CmdArgs) error {
	c, err := read(args)
	if err != nil {
		return err
	}
	if c.listed && !c.main {
		return pass(c)
	}
	if c.main && len(c.RawPrevResult) > 0 {
		return wrong("prevResult", `is there: a main plugin is the first of its list; behind another one ipamd collects garbage, with "gc": true`)
	}
	a, err := argsOf(args)
	if err != nil {
		return err
	}
	asks, err := c.wishes(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.wait+mostCall)
	defer cancel()
	ipamd := c.daemon()
	g := given{ipamd: ipamd, owner: ownerOf(c, args)}
	var p port
	var ends plumb.Spec
	if c.main {
		if ends, err = g.owner.ends(c, args, a); err != nil {
			return err
		}
	} else if p, err = portBelow(c, args); err != nil {
		return err
	}
	// The answer to a question for one lease says whether it was there before.
	if c.main || len(asks) > 1 || asks[0].Family == api.Dual {
		if g.before, err = g.owner.holds(ctx, c, ipamd); err != nil {
			return refused(c, err)
		}
	}
	if c.main {
		asks = append(asks, g.others(asks)...)
		if err := c.fits(ctx, ends, asks); err != nil {
			return plugError(c, err)
		}
	}
	// What is refused from here on has cost an address, which may have to rest.
	for _, ask := range asks {
		ask.Sandbox, ask.UID, ask.Interface = g.owner.container, g.owner.uid(), g.owner.ifname
		ask.Labels, ask.BindWithin = g.owner.labels(a), api.Lasting(max(bindWithin, c.wait+mostCall))
		// The port is there, or none will be that can be known by now. Of two requests the
		// second may be refused, and the first is then to leave nothing that was used.
		if !c.main && len(asks) == 1 {
			ask.Bind = p.binding(args)
		} else {
			ask.Netns = args.Netns
		}
		if err := g.take(ctx, c, ask); err != nil {
			g.undo()
			return err
		}
	}
	r := g.result()
	if c.main {
		if d := c.DNS; d.Domain != "" || len(d.Nameservers)+len(d.Search)+len(d.Options) > 0 {
			r.DNS = d // the list's own comes first, as with the reference plugins
		}
		return g.answerPlugged(ctx, c, args, ends, r)
	}
	if err := g.bind(ctx, c, args, p); err != nil {
		g.undo()
		return err
	}
	return types.PrintResult(r, c.CNIVersion)
}

// given is what the daemon has answered of one ADD.
type given struct {
	ipamd    daemon
	owner    owner
	leases   []api.Lease
	networks []api.Network
	fresh    []api.Lease // of these, those that this ADD has made
	before   []api.Lease // what the interface had
}

// others asks again for what the interface has beside the asks: its port has the addresses
// of all its leases, and a spec without one would take that away.
func (g *given) others(asks []api.AllocateRequest) (out []api.AllocateRequest) {
	for _, l := range g.before {
		family := api.V4
		if strings.Contains(l.Address, ":") {
			family = api.V6
		}
		asked := func(r api.AllocateRequest) bool {
			return r.Family == family || r.Family == api.Dual || r.Family == "" && family == api.V4
		}
		if !slices.ContainsFunc(asks, asked) {
			out = append(out, api.AllocateRequest{Pool: l.Pool, Family: family})
		}
	}
	return out
}

// take asks for one address, or one of each family.
func (g *given) take(ctx context.Context, c *config, ask api.AllocateRequest) error {
	var r *api.AllocateReply
	err := patiently(ctx, c.wait, func(ctx context.Context) (err error) {
		r, err = g.ipamd.allocate(ctx, ask)
		return err
	})
	if err != nil {
		return refused(c, err)
	}
	for i, l := range r.Leases {
		same := func(o api.Lease) bool { return o.ID == l.ID }
		if slices.ContainsFunc(g.leases, same) {
			continue
		}
		g.leases, g.networks = append(g.leases, l), append(g.networks, r.Networks[i])
		if !r.Existing && !slices.ContainsFunc(g.before, same) {
			g.fresh = append(g.fresh, l)
		}
	}
	if ask.Address != "" && r.Leases[0].Address != ask.Address {
		return types.NewError(codeRefused, fmt.Sprintf("%s is wanted, and %s of container %s has %s: DEL comes first",
			ask.Address, g.owner.ifname, g.owner.container, r.Leases[0].Address), "")
	}
	return nil
}

// bind records where the addresses are used: the namespace, and the port where the main
// plugin has made it. By these the daemon confirms one day that they are gone.
func (g *given) bind(ctx context.Context, c *config, args *skel.CmdArgs, p port) error {
	for i, l := range g.leases {
		if on := g.networks[i].Bridge; p.bridge != "" && p.bridge != on {
			return wrong(c.key("pool"), fmt.Sprintf("has the addresses of %s, and %s is a port of %s", on, p.host, p.bridge))
		}
		if l.HostInterface != "" && l.HostInterface != p.host && stillPlugged(l.HostInterface, l.HostIndex) {
			return types.NewError(codeRefused, fmt.Sprintf("%s of container %s is plugged in as %s already: DEL comes first",
				g.owner.ifname, g.owner.container, l.HostInterface), "")
		}
		where := p.binding(args)
		if l.State == api.Paused && l.Netns == where.Netns {
			continue // it stays so
		}
		if !c.main && l.State == api.Bound && l.Netns == where.Netns && l.HostInterface == where.HostInterface && l.MAC == where.MAC {
			continue // by its allocation
		}
		err := patiently(ctx, c.wait, func(ctx context.Context) error {
			r, err := g.ipamd.bind(ctx, l.ID, *where)
			if err == nil {
				g.seen(r.Lease)
			}
			return err
		})
		if err != nil {
			return refused(c, err)
		}
	}
	return nil
}

// seen takes in how a lease is by a later answer.
func (g *given) seen(now api.Lease) {
	for i, l := range g.fresh {
		if l.ID == now.ID {
			g.fresh[i] = now
		}
	}
}

// undo releases what this ADD has made and does not answer, unless another has bound it since.
func (g *given) undo() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	for _, l := range g.fresh {
		// An error leaves a lease that the daemon ends: it has a deadline, or no workload.
		_, _ = g.ipamd.release(ctx, l.ID, api.ReleaseRequest{UID: l.UID, IfRevision: l.Revision})
	}
}

func (g *given) result() *types100.Result {
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for i, l := range g.leases {
		n := g.networks[i]
		ip := net.ParseIP(l.Address)
		bits := 128
		if v4 := ip.To4(); v4 != nil {
			ip, bits = v4, 32
		}
		r.IPs = append(r.IPs, &types100.IPConfig{Address: net.IPNet{IP: ip, Mask: net.CIDRMask(l.PrefixLen, bits)}, Gateway: net.ParseIP(n.Gateway)})
		for _, route := range n.Routes {
			if _, to, err := net.ParseCIDR(route.Destination); err == nil {
				r.Routes = append(r.Routes, &types.Route{Dst: *to, GW: net.ParseIP(route.Via)})
			}
		}
		r.DNS.Nameservers = append(r.DNS.Nameservers, n.DNS...)
	}
	return r
}

// pass hands on what the plugins before have made.
func pass(c *config) error {
	if err := version.ParsePrevResult(&c.NetConf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult: "+err.Error(), "")
	}
	if c.PrevResult == nil {
		return wrong("prevResult", "is missing: a main plugin comes before the one that collects garbage")
	}
	return types.PrintResult(c.PrevResult, c.CNIVersion)
}
