package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

func (c *ctl) quarantineCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Addresses that are kept from everybody",
		Long: `An address is quarantined when it is seen on the wire and no lease explains it,
or by hand. The first ends by itself once nobody has seen the address for long
enough; one made by hand stands until quarantine clear.`,
		Example: `  ipamctl quarantine ls
  ipamctl quarantine add 10.8.64.9 --reason "printer of the lab"`,
		Args: c.knownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.quarantineList(), c.quarantineAdd(), c.quarantineAdopt(), c.quarantineClear())
	return cmd
}

func (c *ctl) quarantineList() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List the quarantined addresses with their evidence",
		Long:    "Lists the quarantined addresses, since when, why, and which witnesses saw them.\n-q prints the addresses.",
		Example: "  ipamctl quarantine ls\n  ipamctl quarantine ls -q",
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			list, err := ipamd.Leases(ctx, client.LeaseFilter{State: string(api.Quarantined)})
			if err != nil {
				return err
			}
			if len(list.Leases) == 0 {
				c.note("no address is quarantined. ipamctl doctor looks for other trouble.")
			}
			var addrs []string
			for _, l := range list.Leases {
				addrs = append(addrs, l.Address)
			}
			return c.answer(list, addrs, func(p *term.Page) {
				if len(list.Leases) > 0 {
					c.drawQuarantine(p, list.Leases)
				}
			})
		},
	}
}

func (c *ctl) drawQuarantine(p *term.Page, leases []api.Lease) {
	rows := make([][]string, len(leases))
	for i, l := range leases {
		rows[i] = []string{term.Word(l.Address), term.Word(l.Pool), c.ago(l.Since), term.Sentence(why(l)), witnesses(l.Evidence)}
	}
	cols := term.Columns("ADDRESS", "POOL", "SINCE", "REASON", "SEEN BY")
	cols[3].Yield = true
	p.Table(cols, rows)
}

// why is the reason of a quarantine: the operator's own words where one holds
// it.
func why(l api.Lease) string { return cmp.Or(l.Hold, l.Reason) }

// witnesses names each witness of some evidence once.
func witnesses(evidence []api.Sighting) string {
	var names []string
	for _, s := range evidence {
		if name := term.Word(s.Witness); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ", ")
}

func (c *ctl) quarantineAdd() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "add IP",
		Short:   "Keep an address from everybody, by hand",
		Long:    "Holds a free, cooling or quarantined address until quarantine clear; wants admin\nrights. -q prints the address.",
		Example: `  ipamctl quarantine add 10.8.64.9 --reason "printer of the lab"`,
		Args:    exactly("an IP address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := anAddress(args[0])
			if err != nil {
				return err
			}
			if strings.TrimSpace(reason) == "" {
				return usageError{
					message: "quarantine add wants --reason",
					hint:    "the history keeps it for the next person",
				}
			}
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			reply, err := ipamd.Quarantine(ctx, addr, reason)
			if err != nil {
				return err
			}
			return c.answer(reply, []string{reply.Lease.Address}, func(p *term.Page) { c.drawLease(p, &reply.Lease) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the history")
	return cmd
}

func (c *ctl) quarantineClear() *cobra.Command {
	return &cobra.Command{
		Use:   "clear IP",
		Short: "End a quarantine before its time",
		Long: `Lets a quarantined address cool down. One that a witness still sees is refused
with the evidence, and so is any while a witness cannot answer. Wants admin
rights. -q prints the address.`,
		Example:           "  ipamctl quarantine clear 10.8.64.9",
		Args:              exactly("an IP address"),
		ValidArgsFunction: c.quarantined,
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := anAddress(args[0])
			if err != nil {
				return err
			}
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			reply, err := ipamd.Clear(ctx, addr)
			if err != nil {
				return err
			}
			return c.answer(reply, []string{reply.Lease.Address}, func(p *term.Page) { c.drawLease(p, &reply.Lease) })
		},
	}
}
