package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/poolmap"
	"github.com/ipamd/ipamd/internal/term"
)

func poolsCommand(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:     "pools",
		Short:   "The pools, and how full they are",
		Long:    "Lists the pools with what they hold. A v4 and a v6 pool of one name serve\ndual-stack sandboxes. -q prints the names.",
		Example: "  ipamctl pools\n  ipamctl pools -o json | jq '.pools[] | {name, available}'",
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			list, err := ipamd.Pools(ctx)
			if err != nil {
				return err
			}
			if len(list.Pools) == 0 {
				c.note("no pools: ipamd's configuration names none.")
			}
			return c.answer(list, poolNames(list.Pools), func(p *page) {
				if len(list.Pools) > 0 {
					p.drawPools(list.Pools)
				}
			})
		},
	}
}

func (p *page) drawPools(pools []api.Pool) {
	cols := term.Columns("POOL", "PREFIX", "GATEWAY", "BRIDGE", "STATE", "SIZE", "AVAILABLE", "USED")
	cols[5].Right, cols[6].Right = true, true
	table(p, cols, pools, func(pool api.Pool) []string {
		left := term.Count(available(pool))
		if available(pool) == 0 {
			left = p.Bad(left)
		}
		return []string{
			term.Word(pool.Name), term.Word(pool.Prefix), term.Maybe(pool.Gateway), term.Word(pool.Bridge), term.Maybe(pool.State),
			term.Count(pool.Size), left, cmp.Or(strings.Join(p.held(pool), ", "), "-"),
		}
	})
}

// held is how many addresses of a pool are in each state.
func (p *page) held(pool api.Pool) (all []string) {
	for _, s := range poolmap.States() {
		if n := pool.ByState[s]; n > 0 {
			all = append(all, term.Count(uint64(n))+" "+p.state(api.State(s)))
		}
	}
	if pool.Kept > 0 {
		all = append(all, term.Count(pool.Kept)+" kept")
	}
	return all
}

// poolNames names each pool once, in order.
func poolNames(pools []api.Pool) []string {
	var names []string
	for _, pool := range pools {
		if !slices.Contains(names, pool.Name) {
			names = append(names, pool.Name)
		}
	}
	return names
}
