package main

import (
	"context"
	"fmt"
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
	ipamd := c.client()
	if h, err := ipamd.Ready(ctx); err != nil {
		why := err.Error()
		if h != nil && len(h.Reasons) > 0 {
			why = "ipamd: " + strings.Join(h.Reasons, "; ")
		}
		return unavailable(why)
	}
	list, err := ipamd.Pools(ctx)
	if err != nil {
		return unavailable(err.Error())
	}
	return c.gives(list.Pools)
}

// gives returns why the network's pool gives no address: of dual stack either, of no
// family that is named the first.
func (c *config) gives(pools []api.Pool) error {
	name, of := c.ipam.Pool, 0
	if name == "" && len(pools) > 0 {
		name = pools[0].Name
	}
	for _, p := range pools {
		if p.Name != name || !c.wants(p) {
			continue
		}
		of++
		switch {
		case p.NotReady != "":
			return unavailable(fmt.Sprintf("pool %s: %s", p.Name, p.NotReady))
		case p.State != api.PoolActive:
			return unavailable(fmt.Sprintf("pool %s is %s", p.Name, p.State))
		case p.Available == 0:
			return unavailable(fmt.Sprintf("pool %s (%s) is exhausted: no address can be given now", p.Name, p.Prefix))
		}
	}
	if of == 0 {
		return unavailable(fmt.Sprintf("%s: ipamd has no pool %q of this family", c.key("pool"), name))
	}
	return nil
}

func (c *config) wants(p api.Pool) bool {
	v6 := strings.Contains(p.Prefix, ":")
	switch api.Family(c.ipam.Family) {
	case api.V4:
		return !v6
	case api.V6:
		return v6
	}
	return true
}

func unavailable(why string) error { return types.NewError(types.ErrPluginNotAvailable, why, "") }
