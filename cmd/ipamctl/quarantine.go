package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/cli"
	"github.com/ipamd/ipamd/internal/term"
)

func quarantineCommand(c *ctl) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Addresses that are not given",
		Long: `An address is quarantined when it is seen on the wire and no lease explains it,
or by hand. The first ends by itself once no witness has seen the address for
long enough; one made by hand stands until quarantine clear.`,
		Example: `  ipamctl quarantine ls
  ipamctl quarantine add 10.8.64.9 --reason "printer of the lab"`,
		Args: cli.KnownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(quarantineList(c), quarantineAdd(c), quarantineAdopt(c), quarantineClear(c))
	return cmd
}

func quarantineList(c *ctl) *cobra.Command {
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
			return c.answer(list, each(list.Leases, address), func(p *page) {
				if len(list.Leases) > 0 {
					p.drawQuarantine(list.Leases)
				}
			})
		},
	}
}

func (p *page) drawQuarantine(leases []api.Lease) {
	cols := term.Columns("ADDRESS", "POOL", "SINCE", "REASON", "SEEN BY")
	cols[3].Yield = true
	table(p, cols, leases, func(l api.Lease) []string {
		return []string{term.Word(l.Address), term.Word(l.Pool), p.ago(l.Since), term.Sentence(cmp.Or(l.Hold, l.Reason)), witnesses(l.Evidence)}
	})
}

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

func quarantineAdd(c *ctl) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "add IP",
		Short:   "Quarantine an address by hand",
		Long:    "Holds a free, cooling or quarantined address until quarantine clear; wants admin\nrights. -q prints the address.",
		Example: `  ipamctl quarantine add 10.8.64.9 --reason "printer of the lab"`,
		Args:    exactly("an IP address"),
		PreRunE: wantsReason(&reason),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.onAddress(cmd, args[0], address, func(ctx context.Context, ipamd *client.Client, addr string) (*api.LeaseReply, error) {
				return ipamd.Quarantine(ctx, addr, reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the history")
	return cmd
}

// wantsReason refuses a verb that was given no reason.
func wantsReason(reason *string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if strings.TrimSpace(*reason) == "" {
			return usageError{message: strings.TrimPrefix(cmd.CommandPath(), "ipamctl ") + " wants --reason",
				hint: `--reason "why": the history keeps it for the next person`}
		}
		return nil
	}
}

func address(l *api.Lease) string { return l.Address }

func quarantineClear(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:   "clear IP",
		Short: "End a quarantine before its time",
		Long: `Lets a quarantined address cool down. One that a witness still sees is refused
with the evidence, and so is any while a witness cannot answer. Wants admin
rights. -q prints the address.`,
		Example:           "  ipamctl quarantine clear 10.8.64.9",
		Args:              exactly("an IP address"),
		ValidArgsFunction: c.offer(asQuarantined),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.onAddress(cmd, args[0], address, func(ctx context.Context, ipamd *client.Client, addr string) (*api.LeaseReply, error) {
				return ipamd.Clear(ctx, addr)
			})
		},
	}
}
