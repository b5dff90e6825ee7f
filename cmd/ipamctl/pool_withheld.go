package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

func poolWithheld(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:   "withheld [POOL]",
		Short: "Addresses of removed pools that no pool gives yet",
		Long: `Lists the addresses that outlive their removed pools, all or those of one pool
(its name or its uid): since when, and why. One that cools is given after its
cooldown; one that is quarantined was in use, or may be. The pool that comes to
contain one has it so.
-q prints the addresses.`,
		Example: "  ipamctl pool withheld\n  ipamctl pool withheld old -o json | jq -r '.withheld[].address'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pool := ""
			if len(args) > 0 {
				if pool = args[0]; pool == "" {
					return usageError{message: "POOL is empty", hint: "all of them: ipamctl pool withheld"}
				}
			}
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			list, err := ipamd.Withheld(ctx, pool)
			if err != nil {
				return err
			}
			if len(list.Withheld) == 0 {
				c.note("no address is withheld.")
			}
			addrs := make([]string, len(list.Withheld))
			for i, w := range list.Withheld {
				addrs[i] = place(w.Address, w.PrefixLength)
			}
			return c.answer(list, addrs, func(p *page) {
				if len(list.Withheld) > 0 {
					p.drawWithheld(list.Withheld)
				}
			})
		},
	}
}

func (p *page) drawWithheld(all []api.Withheld) {
	cols := term.Columns("ADDRESS", "STATE", "SINCE", "POOL", "SANDBOX", "WHY")
	cols[4].Yield, cols[5].Yield = true, true
	if p.wide {
		cols = append(cols, term.Columns("POOL UID", "LEASE")...)
	}
	table(p, cols, all, func(w api.Withheld) []string {
		row := []string{place(w.Address, w.PrefixLength), p.state(w.State), p.ago(w.Since), term.Word(w.Pool), term.Maybe(w.Sandbox), p.whyWithheld(&w)}
		if p.wide {
			row = append(row, term.Word(w.PoolUID), term.Word(w.LeaseID))
		}
		return row
	})
}

// whyWithheld is why no pool gives an address.
func (p *page) whyWithheld(w *api.Withheld) string {
	switch {
	case w.Hold != "":
		return "held: " + term.Sentence(w.Hold)
	case w.State == api.Cooling:
		return "it cools"
	case len(w.Evidence) == 0:
		return "it may be in use"
	case w.Evidence[0].Note != "":
		return term.Sentence(w.Evidence[0].Note)
	}
	return fmt.Sprintf("%s saw %s", term.Word(w.Evidence[0].Witness), p.seen(w.Evidence[0]))
}
