package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
)

func (c *ctl) poolsCommand() *cobra.Command {
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
					c.drawPools(p, list.Pools)
				}
			})
		},
	}
}

func (c *ctl) drawPools(p *page, pools []api.Pool) {
	cols := columns("POOL", "PREFIX", "GATEWAY", "BRIDGE", "STATE", "SIZE", "AVAILABLE", "USED")
	cols[5].right, cols[6].right = true, true
	rows := make([][]string, len(pools))
	for i, pool := range pools {
		var used []string
		for _, s := range states() {
			if n := pool.ByState[s]; n > 0 {
				used = append(used, fmt.Sprintf("%s %s", count(uint64(n)), p.state(api.State(s))))
			}
		}
		if len(used) == 0 {
			used = []string{"-"}
		}
		left := count(available(pool))
		if available(pool) == 0 {
			left = p.bad(left)
		}
		rows[i] = []string{
			word(pool.Name), word(pool.Prefix), maybe(pool.Gateway), word(pool.Bridge), maybe(pool.State),
			count(pool.Size), left, strings.Join(used, ", "),
		}
	}
	p.table(cols, rows)
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
