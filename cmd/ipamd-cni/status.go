package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
)

// status says whether an ADD can succeed now.
func status(args *skel.CmdArgs) error {
	c, err := read(args)
	if err != nil || c.listed && !c.main {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), mostCall)
	defer cancel()
	ipamd := c.daemon()
	if h, err := ipamd.ready(ctx); err != nil {
		why := err.Error()
		if h != nil && len(h.Reasons) > 0 {
			why = "ipamd: " + strings.Join(h.Reasons, "; ")
		}
		return unavailable(why)
	}
	pools, err := ipamd.pools(ctx)
	if err != nil {
		return unavailable(err.Error())
	}
	return c.gives(pools)
}

// gives returns why the network's pool gives no address: of dual stack either, of no
// family that is named the one that an ADD asks for.
func (c *config) gives(pools []api.Pool) error {
	of := c.ofPool(pools)
	family := api.Family(c.ipam.Family)
	if family == "" {
		family = api.V6
		if slices.ContainsFunc(of, func(p api.Pool) bool { return p.Family == api.V4 }) {
			family = api.V4
		}
	}
	if family != api.Dual {
		of = slices.DeleteFunc(of, func(p api.Pool) bool { return p.Family != family })
	}
	for _, p := range of {
		switch {
		case p.NotReady != "":
			return unavailable(fmt.Sprintf("pool %s: %s", p.Name, p.NotReady))
		case p.State != api.PoolActive:
			return unavailable(fmt.Sprintf("pool %s is %s", p.Name, p.State))
		case p.Available == 0:
			return unavailable(fmt.Sprintf("pool %s (%s) is exhausted: no address can be given now", p.Name, p.Prefix))
		}
	}
	if len(of) == 0 {
		return unavailable(fmt.Sprintf("%s: ipamd has no pool %q of this family", c.key("pool"), c.poolName(pools)))
	}
	return nil
}

func (c *config) poolName(pools []api.Pool) string {
	if c.ipam.Pool == "" && len(pools) > 0 {
		return pools[0].Name
	}
	return c.ipam.Pool
}

// ofPool is the network's pool, each of its families.
func (c *config) ofPool(pools []api.Pool) (out []api.Pool) {
	for _, p := range pools {
		if p.Name == c.poolName(pools) {
			out = append(out, p)
		}
	}
	return out
}

func unavailable(why string) error { return types.NewError(types.ErrPluginNotAvailable, why, "") }
