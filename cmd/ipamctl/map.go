package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/poolmap"
	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/internal/term"
)

// mapAnswer is what the map is drawn from.
type mapAnswer struct {
	Pools    []api.Pool  `json:"pools"`
	Leases   []api.Lease `json:"leases"`
	Revision int64       `json:"revision"`
	Epoch    string      `json:"epoch"`
}

func mapCommand(c *ctl) *cobra.Command {
	var within string
	cmd := &cobra.Command{
		Use:   "map [POOL]",
		Short: "Draw the pools, a letter an address",
		Long: `Draws each pool as a grid that fits the terminal (COLUMNS overrides; 80 in a
pipe), a letter and a colour for each state. A row begins with its first
address. Of a pool with more than 4 096 addresses only the rows that hold
something are drawn, the ranges between them are summed up; --within
looks closer. -q prints the addresses that are not free.`,
		Example:           "  ipamctl map\n  ipamctl map default --within 10.8.80.0/22\n  ipamctl map --no-color | less",
		Args:              atMost("a pool"),
		ValidArgsFunction: c.pools,
		RunE: func(cmd *cobra.Command, args []string) error {
			pool := ""
			if len(args) == 1 {
				pool = args[0]
			}
			var zoom *ranges.Range
			if within != "" {
				s, err := ranges.Parse(within)
				if err != nil {
					return usageError{
						message: "--within " + err.Error(),
						hint:    "for example --within 10.8.80.0/22, or 10.8.80.0-10.8.83.255",
					}
				}
				zoom = &s
			}
			answer, err := c.readMap(cmd, pool)
			if err != nil {
				return err
			}
			if len(answer.Pools) == 0 {
				c.note("no pools: ipamd's configuration names none.")
			}
			maps, err := mapsOf(answer, zoom)
			if err != nil {
				return err
			}
			return c.answer(answer, each(answer.Leases, address), func(p *page) {
				for i, f := range maps {
					if i > 0 {
						p.Line("")
					}
					area := f.All
					if zoom != nil {
						area, _ = zoom.Clip(f.All)
					}
					f.Draw(&p.Page, area, c.width())
				}
			})
		},
	}
	cmd.Flags().StringVar(&within, "within", "", "only this `part`, a prefix or a range")
	return cmd
}

// readMap reads the pools of one name, or all, and then their leases.
func (c *ctl) readMap(cmd *cobra.Command, pool string) (*mapAnswer, error) {
	ctx, cancel, ipamd := c.call(cmd, 0)
	defer cancel()
	pools, err := ipamd.Pools(ctx)
	if err != nil {
		return nil, err
	}
	chosen := pools.Pools
	if pool != "" {
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(p api.Pool) bool { return p.Name != pool })
		if len(chosen) == 0 {
			return nil, fmt.Errorf("map %s: %w", term.Word(pool), &api.Error{
				Code: api.NotFound, Message: "no pool of this name; there is " + strings.Join(poolNames(pools.Pools), ", "),
				Revision: pools.Revision, Epoch: pools.Epoch,
			})
		}
	}
	leases, err := ipamd.Leases(ctx, client.LeaseFilter{Pool: pool})
	if err != nil {
		return nil, err
	}
	return &mapAnswer{Pools: chosen, Leases: leases.Leases, Revision: leases.Revision, Epoch: leases.Epoch}, nil
}

// mapsOf prepares the pools for drawing: all, or those that zoom touches.
// Then the answer, too, holds no more than that.
func mapsOf(answer *mapAnswer, zoom *ranges.Range) ([]*poolmap.Map, error) {
	var maps []*poolmap.Map
	var touched []api.Pool
	for _, pool := range answer.Pools {
		f, err := poolmap.New(pool, answer.Leases)
		if err != nil {
			return nil, err
		}
		if zoom != nil {
			if _, ok := zoom.Clip(f.All); !ok || zoom.From.Is4() != f.All.From.Is4() {
				continue
			}
		}
		maps = append(maps, f)
		touched = append(touched, pool)
	}
	if zoom == nil {
		return maps, nil
	}
	if len(maps) == 0 {
		return nil, usageError{
			message: "--within " + zoom.String() + " is in no pool that was asked for",
			hint:    "the pools and their prefixes: ipamctl pools",
		}
	}
	answer.Pools = touched
	answer.Leases = slices.DeleteFunc(slices.Clone(answer.Leases), func(l api.Lease) bool {
		addr, err := netip.ParseAddr(l.Address)
		return err != nil || !zoom.Contains(addr)
	})
	return maps, nil
}
