package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/cli"
	"github.com/ipamd/ipamd/internal/poolmap"
	"github.com/ipamd/ipamd/internal/term"
)

func poolCommand(c *ctl) *cobra.Command {
	list := listPools(c)
	cmd := &cobra.Command{
		Use:     "pool",
		Aliases: []string{"pools"},
		Short:   "The pools: what they hold, and how they change",
		Long: `Without a verb it lists the pools. A v4 and a v6 pool of one name serve
dual-stack sandboxes; --family says which of the two a verb is about. Each verb
that changes a pool takes --preview, which shows what would become of each lease
and does nothing. A change wants admin rights.`,
		Example: "  ipamctl pools\n  ipamctl pool show default\n  ipamctl pool apply default --prefix 10.8.64.0/23 --preview",
		Args:    cli.KnownVerb,
		RunE:    list.RunE,
	}
	cmd.AddCommand(list, poolShow(c), poolApply(c), poolDrain(c), poolRemove(c), poolWithheld(c))
	return cmd
}

func listPools(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "The pools, and how full they are",
		Long:    "Lists the pools with what they hold; OUTSIDE counts leases on addresses that\ntheir pool does not give any more. -q prints the names.",
		Example: "  ipamctl pool ls\n  ipamctl pool ls -o json | jq '.pools[] | {name, available}'",
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			list, err := ipamd.Pools(ctx)
			if err != nil {
				return err
			}
			if len(list.Pools) == 0 {
				c.note("no pools: ipamctl pool apply makes one.")
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
	cols := term.Columns("POOL", "PREFIX", "GATEWAY", "BRIDGE", "STATE", "OUTSIDE", "SIZE", "AVAILABLE", "USED")
	cols[5].Right, cols[6].Right, cols[7].Right = true, true, true
	rows := make([][]string, len(pools))
	outside := false
	for i, pool := range pools {
		left := term.Count(poolmap.Available(pool))
		if poolmap.Available(pool) == 0 {
			left = p.Bad(left)
		}
		outside = outside || pool.Outside > 0
		rows[i] = []string{
			term.Word(pool.Name), term.Word(pool.Prefix), term.Maybe(pool.Gateway), term.Word(pool.Bridge), p.poolState(pool.State),
			fmt.Sprint(pool.Outside), term.Count(pool.Size), left, cmp.Or(strings.Join(poolmap.Held(&p.Page, pool), ", "), "-"),
		}
	}
	if !outside && !p.wide {
		cols = slices.Delete(cols, 5, 6)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 5, 6)
		}
	}
	p.Table(cols, rows)
	p.drawNotReady(pools)
}

// drawNotReady says which pools give nothing, and with which commands they will.
func (p *page) drawNotReady(pools []api.Pool) {
	for _, pool := range pools {
		if pool.NotReady == "" {
			continue
		}
		p.Text("", p.Bad(fmt.Sprintf("%s, %s, gives nothing: %s", term.Word(pool.Name), term.Word(pool.Prefix), term.Sentence(pool.NotReady))))
		if len(pool.Repair) > 0 {
			p.Line("  next: %s", term.Sentence(strings.Join(pool.Repair, " && ")))
		}
	}
}

func (p *page) poolState(s api.PoolState) string {
	if s == "" || s == api.PoolActive {
		return term.Maybe(string(s))
	}
	return p.Warn(term.Word(string(s)))
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

func poolShow(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:               "show POOL",
		Short:             "Everything about the pools of one name",
		Long:              "Shows how a pool is described and what it holds. The answer is always a list: a\nv4 and a v6 pool may have one name. -q prints the uids.",
		Example:           "  ipamctl pool show default\n  ipamctl pool show default -o json | jq -r '.pools[].uid'",
		Args:              exactly("the name of a pool"),
		ValidArgsFunction: c.pools,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			c.about.pool = args[0]
			list, err := ipamd.Pool(ctx, args[0])
			if err != nil {
				return err
			}
			var uids []string
			for _, pool := range list.Pools {
				uids = append(uids, pool.UID)
			}
			return c.answer(list, uids, func(p *page) {
				for i, pool := range list.Pools {
					if i > 0 {
						p.Line("")
					}
					p.drawPool(pool)
				}
			})
		},
	}
}

func (p *page) drawPool(pool api.Pool) {
	p.Line("%s, %s, is %s", p.Bold(term.Word(pool.Name)), term.Word(pool.Prefix), p.poolState(pool.State))
	var routes, excludes, servers, kept []string
	for _, r := range pool.Routes {
		routes = append(routes, term.Word(r.Destination)+" via "+term.Word(r.Via))
	}
	for _, e := range pool.Exclude {
		excludes = append(excludes, term.Word(e))
	}
	for _, s := range pool.DNS {
		servers = append(servers, term.Word(s))
	}
	for _, r := range pool.Reservation {
		kept = append(kept, term.Word(r.Address)+" for "+term.Word(r.Sandbox))
	}
	optional := func(v any) string {
		if s := fmt.Sprint(v); s != "" && s != "0" {
			return term.Word(s)
		}
		return ""
	}
	p.Fields(
		[2]string{"uid", term.Word(pool.UID)},
		[2]string{"generation", fmt.Sprint(pool.Generation)},
		[2]string{"gateway", term.Maybe(pool.Gateway)},
		[2]string{"bridge", term.Word(pool.Bridge)},
		[2]string{"excludes", strings.Join(excludes, ", ")},
		[2]string{"routes", strings.Join(routes, ", ")},
		[2]string{"dns", strings.Join(servers, ", ")},
		[2]string{"reserved", strings.Join(kept, ", ")},
		[2]string{"mtu", optional(pool.MTU)},
		[2]string{"cooldown", optional(pool.Cooldown)},
		[2]string{"cooldown_min", optional(pool.CooldownMin)},
		[2]string{"exhausted", optional(pool.Exhausted)},
		[2]string{"labels", labels(pool.Labels)},
		[2]string{"warm", drawWarm(pool.Warm)},
		[2]string{"slots", p.drawSlots(pool.Slots)},
		[2]string{"room", poolmap.Room(&p.Page, pool)},
		[2]string{"holds", strings.Join(poolmap.Held(&p.Page, pool), ", ")},
		[2]string{"outside", optional(pool.Outside)},
	)
	p.drawNotReady([]api.Pool{pool})
}

// drawWarm is how many slots a pool keeps.
func drawWarm(w *api.PoolWarm) string {
	if w == nil {
		return ""
	}
	return fmt.Sprintf("%d ready, at most %d, %s", w.Size, cmp.Or(w.Max, w.Size), term.Word(cmp.Or(w.Strategy, "recreate")))
}

// drawSlots is what there is of them.
func (p *page) drawSlots(s *api.PoolSlots) string {
	if s == nil {
		return ""
	}
	said := fmt.Sprintf("%d ready, %d being made, %d being taken down", s.Ready, s.Making, s.Ending)
	if s.Why != "" {
		said += "; " + p.Warn(term.Sentence(s.Why))
	}
	return said
}

// drawAllSlots shows the pools that have slots, or should.
func (p *page) drawAllSlots(pools []api.Pool) {
	have := slices.DeleteFunc(slices.Clone(pools), func(pool api.Pool) bool { return pool.Slots == nil })
	part(p, "Warm slots", term.Wrapping("POOL", "FAMILY", "READY", "OF", "MAKING", "ENDING", "WHY NOT MORE"), have, func(pool api.Pool) []string {
		s, of := pool.Slots, "0"
		if pool.Warm != nil {
			of = fmt.Sprint(pool.Warm.Size)
		}
		return []string{term.Word(pool.Name), term.Word(string(pool.Family)), fmt.Sprint(s.Ready), of, fmt.Sprint(s.Making), fmt.Sprint(s.Ending), p.Warn(term.Sentence(s.Why))}
	})
}

// poolNamed is the pool that a person names; family is needed where two have the name.
func poolNamed(ctx context.Context, ipamd *client.Client, name, family string) (*api.Pool, error) {
	list, err := ipamd.Pool(ctx, name)
	if err != nil {
		return nil, err
	}
	var found []api.Pool
	for _, pool := range list.Pools {
		if family == "" || string(pool.Family) == family {
			found = append(found, pool)
		}
	}
	switch len(found) {
	case 1:
		return &found[0], nil
	case 0:
		return nil, usageError{message: fmt.Sprintf("pool %s has no %s prefix", term.Word(name), family), field: "family",
			hint: "the pools of this name: ipamctl pool show " + term.Word(name)}
	default:
		return nil, usageError{message: fmt.Sprintf("%s names two pools, %s and %s", term.Word(name), found[0].Prefix, found[1].Prefix),
			hint: "say which: --family v4 or --family v6", field: "family"}
	}
}
