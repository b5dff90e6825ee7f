package main

import (
	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

func (c *ctl) leasesCommand() *cobra.Command {
	state := newChoice(append([]string{""}, states()...)...)
	filter := client.LeaseFilter{}
	cmd := &cobra.Command{
		Use:     "leases",
		Aliases: []string{"ls"},
		Short:   "List the leases, in the order of their addresses",
		Long: `Lists every address that is not free: who holds it, in which state, since when.
Filters combine. -q prints the lease ids.`,
		Example: `  ipamctl leases
  ipamctl leases --sandbox web-1
  ipamctl leases --state releasing -q`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			filter.State = state.value
			list, err := ipamd.Leases(ctx, filter)
			if err != nil {
				return err
			}
			if len(list.Leases) == 0 {
				if filter == (client.LeaseFilter{}) {
					c.note("no leases: every address is free. ipamctl pools shows the room, ipamctl allocate SANDBOX takes one.")
				} else {
					c.note("no lease matches. ipamctl leases shows all.")
				}
			}
			return c.answer(list, leaseIDs(list.Leases), func(p *page) {
				if len(list.Leases) > 0 {
					c.drawLeases(p, list.Leases)
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&filter.Sandbox, "sandbox", "", "only this `sandbox`")
	f.Var(&state, "state", "only this `state`: "+state.want())
	f.StringVar(&filter.Pool, "pool", "", "only this `pool`")
	c.complete(cmd, "sandbox", c.sandboxes)
	c.complete(cmd, "state", state.complete)
	c.complete(cmd, "pool", c.poolNames)
	return cmd
}

func (c *ctl) drawLeases(p *page, leases []api.Lease) {
	rows := make([][]string, len(leases))
	for i, l := range leases {
		rows[i] = []string{
			word(l.Address), p.state(l.State), maybe(l.Sandbox), maybe(l.Interface),
			c.ago(l.Since), word(l.Pool), word(l.ID),
		}
	}
	cols := columns("ADDRESS", "STATE", "SANDBOX", "INTERFACE", "SINCE", "POOL", "LEASE")
	cols[2].yield = true
	p.table(cols, rows)
}

func leaseIDs(leases []api.Lease) []string {
	ids := make([]string, len(leases))
	for i, l := range leases {
		ids[i] = l.ID
	}
	return ids
}
