package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

func bookCheck(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Walk every invariant of the book of a running daemon",
		Long: `Has the daemon look its book over while changes go on, as it is at one revision,
and lists what is broken, a line each: the invariant's name and what breaks it.
Nothing is changed. A stopped daemon's book, or a copy, is ipamd's to look at:
ipamd check [BOOK]. The exit code is 0 when the book is whole and 1 when
something is broken. Wants admin rights. -q prints the names of the broken
invariants.`,
		Example: "  ipamctl book check\n  ipamctl book check -o json",
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			extra := api.LongestPass
			if cmd.Flags().Changed("timeout") {
				extra = 0
			}
			ctx, cancel, ipamd := c.call(cmd, extra)
			defer cancel()
			stop := c.progress("walking the invariants of the book")
			reply, err := ipamd.CheckBook(ctx)
			stop()
			if err != nil {
				return err
			}
			var names []string
			for _, f := range reply.Findings {
				names = append(names, f.Invariant)
			}
			if err := c.answer(reply, names, func(p *page) { p.drawBookCheck(reply) }); err != nil {
				return err
			}
			if !reply.Whole {
				return exitWith(exitOther)
			}
			return nil
		},
	}
}

func (p *page) drawBookCheck(r *api.CheckBookReply) {
	at := fmt.Sprintf("revision %d, epoch %s", r.Revision, term.Word(r.Epoch))
	if r.Whole {
		p.Line("%s: %s in use or resting, %s", p.Good("whole"), term.Plural(r.Addresses, "address"), at)
		return
	}
	for _, f := range r.Findings {
		p.Line("%s: %s", term.Word(f.Invariant), term.Sentence(f.Detail))
	}
	more := ""
	if r.Truncated {
		more = ", and more"
	}
	p.Line("\n%s%s, at %s", term.Plural(len(r.Findings), "violation"), more, at)
	p.Line("next: systemctl stop ipamd; ipamd check; ipamd rebuild --preview")
}
