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
			ctx, cancel, ipamd := c.callPass(cmd)
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
		p.Line("%s: %s in use or cooling, %s", p.Good("whole"), term.Plural(r.Addresses, "address"), at)
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
	p.Line("next: systemctl stop ipamd.socket ipamd.service; ipamd check; ipamd rebuild --preview")
}

// bookOffline is a verb that is done to a stopped daemon's book, by ipamd: it says how.
func bookOffline(verb, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " FILE",
		Short: "Show how to " + short,
		Long: long + `

It is done by ipamd itself, while the daemon is stopped; this verb changes
nothing and says so:

  systemctl stop ipamd.socket ipamd.service
  ipamd ` + verb + ` FILE              what it would do; changes nothing
  ipamd ` + verb + ` FILE --confirm
  systemctl start ipamd.socket ipamd.service`,
		Example: "  ipamctl book " + verb + " /root/" + map[string]string{"restore": "book-backup.db", "import": "netdb.db"}[verb],
		Args:    exactly("a file"),
		RunE: func(_ *cobra.Command, args []string) error {
			return usageError{message: fmt.Sprintf("book %s is not done to a running daemon: it makes another book, with another epoch", verb),
				hint: fmt.Sprintf("first look: systemctl stop ipamd.socket ipamd.service; ipamd %s %s; then: ipamd %s %s --confirm; systemctl start ipamd.socket ipamd.service", verb, args[0], verb, args[0])}
		},
	}
}

func bookRestore() *cobra.Command {
	return bookOffline("restore", "go back to a backup of the book",
		`A restore makes a new book, with a new epoch, from a backup and from what is
on the machine now: who lives now, and what only the present book knows, wins
over the backup.`)
}

func bookImport() *cobra.Command {
	return bookOffline("import", "take over the predecessor's lease file",
		`An import makes a new book from the predecessor's SQLite file (tables ips,
subnets, interfaces) and from what is on the machine now. Owners come from the
labels of containers; an address that no container explains is quarantined.`)
}
