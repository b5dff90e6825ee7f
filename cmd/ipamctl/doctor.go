package main

import (
	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
)

func (c *ctl) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Where book, wire and runtime disagree, and what mends it",
		Long: `Lists every disagreement, a line each, with the command that mends it. The exit
code is 0 when all agree and 1 when there is any finding. -q prints the
addresses, or the lease ids of findings that have no address.`,
		Example: "  ipamctl doctor\n  ipamctl doctor -q || echo 'something is off'",
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			reply, err := ipamd.Doctor(ctx)
			if err != nil {
				return err
			}
			var where []string
			for _, f := range reply.Findings {
				switch {
				case f.Address != "":
					where = append(where, f.Address)
				case f.LeaseID != "":
					where = append(where, f.LeaseID)
				}
			}
			if err := c.answer(reply, where, func(p *page) { c.drawFindings(p, reply.Findings) }); err != nil {
				return err
			}
			if len(reply.Findings) > 0 {
				return told(exitOther)
			}
			return nil
		},
	}
}

func (c *ctl) drawFindings(p *page, findings []api.Finding) {
	if len(findings) == 0 {
		p.line("%s: book, wire and runtime agree", p.good("nothing found"))
		return
	}
	rows := make([][]string, len(findings))
	for i, f := range findings {
		where := maybe(f.Address)
		if f.Address == "" && f.LeaseID != "" {
			where = word(f.LeaseID)
		}
		rows[i] = []string{p.bad(word(f.Kind)), where, c.ago(f.Since), sentence(f.Detail), sentence(f.Mend)}
	}
	p.table(columns("FINDING", "WHERE", "SINCE", "DETAIL", "MEND"), rows)
	p.line("\n%s", plural(len(findings), "finding"))
}
