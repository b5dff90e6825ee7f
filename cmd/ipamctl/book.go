package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/cli"
	"github.com/ipamd/ipamd/internal/term"
)

func bookCommand(c *ctl) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "book",
		Short: "The daemon's lease book as a whole",
		Long: `Verbs on the whole book of a running daemon: check, backup, adopt. A new book
is made by ipamd itself while the daemon is stopped; each of these shows first
what it would do:

  ipamd rebuild --preview    when the book is broken
  ipamd restore FILE         to go back to a backup
  ipamd import FILE          to take over the predecessor's file`,
		Example: "  ipamctl book check\n  ipamctl book backup /var/lib/ipamd/backup.db\n  ipamctl book adopt",
		Args:    cli.KnownVerb,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(bookCheck(c), bookBackup(c), bookRestore(), bookImport(), bookAdopt(c))
	return cmd
}

func bookBackup(c *ctl) *cobra.Command {
	var req api.BackupRequest
	cmd := &cobra.Command{
		Use:   "backup PATH",
		Short: "Copy the book to a file, while changes go on",
		Long: `Has the daemon copy its book, as it is at one revision, to a file of its
machine. The copy is checked and synced, and comes to PATH whole or not at all;
it is readable by root only. The service can write below /var/lib/ipamd only.
Look an old copy over with ipamd check PATH. Wants admin rights. -q prints the
path.`,
		Example: `  ipamctl book backup /var/lib/ipamd/backup.db
  ipamctl book backup /var/lib/ipamd/backup.db --replace -o json`,
		Args: exactly("a path"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Path, err = filepath.Abs(args[0]); err != nil {
				return err
			}
			ctx, cancel, ipamd := c.callPass(cmd)
			defer cancel()
			stop := c.progress("copying the book")
			reply, err := ipamd.Backup(ctx, req)
			stop()
			if err != nil {
				return err
			}
			return c.answer(reply, []string{reply.Path}, func(p *page) {
				p.Line("%s: whole: %s bytes, revision %d, epoch %s", term.Word(reply.Path), term.Count(uint64(reply.Bytes)), reply.Revision, term.Word(reply.Epoch))
			})
		},
	}
	cmd.Flags().BoolVar(&req.Replace, "replace", false, "it may be there already")
	return cmd
}

func bookAdopt(c *ctl) *cobra.Command {
	var req api.AdoptBookRequest
	var preview bool
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Take over a book of another runner or machine",
		Long: `Shows whose the book is, which of its leases live here, and what the first pass
would do; it changes nothing. With --confirm EPOCH, the epoch that it showed,
the book becomes this runner's, in another epoch, and the daemon goes on without
a restart. In a book of another epoch it is refused.

No address moves by it. A lease whose workload is not here stays held, and ends
as every lease does: released by its owner or after a long absence, and
confirmed. If the former machine still runs with a copy of the book, its runner
keeps that copy. Wants admin rights. -q prints the epoch.`,
		Example: `  ipamctl book adopt
  ipamctl book adopt --confirm 7a3f1f0e-3b0b-4f0e-9a55-0c8f2a4b1d6e`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if preview && req.Epoch != "" {
				return usageError{message: "--preview and --confirm exclude each other",
					hint: "first look: ipamctl book adopt; then: ipamctl book adopt --confirm EPOCH"}
			}
			c.about.book = true
			ctx, cancel, ipamd := c.callPass(cmd)
			defer cancel()
			stop := c.progress("comparing the book with what lives here")
			reply, err := ipamd.AdoptBook(ctx, req)
			stop()
			if err != nil {
				return err
			}
			return c.answer(reply, []string{reply.Epoch}, func(p *page) { p.drawAdoption(reply) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&preview, "preview", false, "only look, as without --confirm")
	f.StringVar(&req.Epoch, "confirm", "", "adopt the book of this `epoch`, which a look showed")
	f.StringVar(&req.Reason, "reason", "", "`why`, for the history")
	c.complete(cmd, "confirm", cobra.NoFileCompletions)
	return cmd
}

func (p *page) drawAdoption(r *api.AdoptBookReply) {
	whose := func(h api.BookIdentity) string {
		return fmt.Sprintf("runner %s, machine %s", term.Maybe(h.RunnerUID), term.Maybe(h.MachineID))
	}
	if r.Adopted {
		p.Line("%s", p.Good("the book is adopted"))
		p.Line("it is of %s, epoch %s, revision %d", whose(r.Book), term.Word(r.Book.Epoch), r.Revision)
		p.Line("\nnext: ipamctl status, ipamctl doctor")
		return
	}
	p.Line("the book is of %s, epoch %s", whose(r.Book), term.Word(r.Book.Epoch))
	if r.Mismatch == "" {
		p.Line("%s", p.Good("it is this runner's: there is nothing to adopt"))
		return
	}
	p.Line("it would be of %s, in another epoch", whose(r.Host))
	p.Line("%s held: %d live here, %d seen but not proven, %d not seen, %d disputed; %s stay withheld", term.Plural(r.Live+r.Unproven+r.NotSeen+r.Disputed, "lease"),
		r.Live, r.Unproven, r.NotSeen, r.Disputed, term.Plural(r.Withheld, "address"))
	if len(r.Leases) > 0 {
		p.Line("")
		cols := term.Columns("ADDRESS", "STATE", "SANDBOX", "HERE", "LEASE")
		cols[2].Yield = true
		table(p, cols, r.Leases, func(l api.BookLease) []string {
			here := term.Sentence(l.Standing)
			if l.Detail != "" {
				here += ": " + term.Sentence(l.Detail)
			}
			return []string{term.Word(l.Address), p.state(l.State), term.Maybe(l.Sandbox), here, term.Word(l.LeaseID)}
		})
	}
	if r.Refused > 0 {
		p.Heading(fmt.Sprintf("Not taken over: %s", term.Plural(r.Refused, "row")))
		cols := term.Columns("ADDRESS", "STATE", "SANDBOX", "POOL UID", "NEW POOL UID", "WHY")
		cols[2].Yield, cols[5].Yield = true, true
		table(p, cols, r.Refusals, func(l api.BookRefusal) []string {
			return []string{term.Word(l.Address), term.Maybe(string(l.State)), term.Maybe(l.Sandbox), term.Maybe(l.PoolUID), term.Maybe(l.NewPoolUID), term.Sentence(l.Reason)}
		})
	}
	if r.Plan != nil {
		p.Heading("What the first pass would do")
		p.drawReport(&api.Report{Complete: r.Plan.Complete, Silent: r.Plan.Silent, Leases: r.Plan.Leases, Seen: r.Plan.Seen, Absent: r.Plan.Absent,
			Took: r.Plan.Took, Actions: r.Plan.Actions, Reports: r.Plan.Reports})
	}
	if r.Blocked != "" {
		p.Line("\n%s", p.Bad("it cannot be adopted so: "+term.Sentence(r.Blocked)))
		p.Line("next: have the configuration name its pools as the book does, systemctl restart ipamd, ipamctl book adopt")
		return
	}
	p.Line("\nnext: ipamctl book adopt --confirm %s", term.Word(r.Book.Epoch))
}
