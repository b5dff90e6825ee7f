package main

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/holding"
	"github.com/ipamd/ipamd/internal/term"
)

func historyCommand(c *ctl) *cobra.Command {
	var (
		since, lease string
		limit        int
	)
	cmd := &cobra.Command{
		Use:   "history [IP|SANDBOX|LEASE]",
		Short: "What happened to an address, a sandbox or a lease, newest first",
		Long: `Shows who held an address, or what a sandbox held: from when until when, why it
ended, by whom. Below that are the recorded changes, each with its revision,
reason, actor and time; without an argument those of all addresses. What reads
as an IP address is taken as one; what no sandbox is named as may be a lease id,
of an open lease also its beginning or end. -q prints the lease ids, each once.`,
		Example: `  ipamctl history 10.8.64.7
  ipamctl history web-1 --since 2h
  ipamctl history web-1 --since 2026-11-20
  ipamctl history --since 2026-11-21T14:00:00Z --limit 500 -o json`,
		Args:              atMost("an IP address, a sandbox or a lease id"),
		ValidArgsFunction: c.offer(asAddress, asSandbox),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter := client.HistoryFilter{Limit: limit}
			if limit < 1 {
				return usageError{message: "--limit must be 1 or more"}
			}
			if since != "" {
				at, err := c.readSince(since)
				if err != nil {
					return err
				}
				filter.Since = at
			}
			if len(args) == 1 {
				if addr, err := netip.ParseAddr(args[0]); err == nil {
					filter.Address = addr.String()
				} else {
					filter.Sandbox = args[0]
				}
			}
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			if lease != "" {
				id, err := c.leaseNamed(ctx, ipamd, lease, itsLeases)
				if err != nil {
					return err
				}
				filter.LeaseID = id
			}
			list, err := ipamd.History(ctx, filter)
			if err != nil {
				return err
			}
			if len(list.Changes) == 0 && filter.Sandbox != "" && lease == "" {
				id, err := c.leaseNamed(ctx, ipamd, filter.Sandbox, itsLeases)
				if err == nil && (id != filter.Sandbox || looksLikeLease(id)) {
					filter.Sandbox, filter.LeaseID = "", id
					if list, err = ipamd.History(ctx, filter); err != nil {
						return err
					}
				}
			}
			switch n := len(list.Changes); {
			case n == 0:
				c.note("no recorded change matches. ipamctl history shows the newest of all.")
			case n == limit:
				c.note("the newest %s; older ones: --limit", term.Plural(n, "change"))
			}
			return c.answer(list, changedLeases(list.Changes), func(p *page) {
				if len(list.Changes) == 0 {
					return
				}
				if filter.Address != "" || filter.Sandbox != "" || filter.LeaseID != "" {
					p.drawHoldings(holding.Read(list.Changes))
					p.Heading("Changes, newest first")
				}
				p.drawChanges(list.Changes, true)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "", "only changes from this `time` on: RFC 3339, a date, or a duration back from now")
	f.StringVar(&lease, "lease", "", "only changes of this lease `id`")
	f.IntVar(&limit, "limit", 50, "at most this `number` of changes")
	c.complete(cmd, "lease", c.offer(asLease))
	return cmd
}

// readSince reads "1h", "2026-11-21T14:00:00Z" or "2026-11-21", which begins
// at midnight where the person is.
func (c *ctl) readSince(s string) (time.Time, error) {
	if back, err := time.ParseDuration(s); err == nil && back >= 0 {
		return c.now().Add(-back), nil
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	if at, err := time.ParseInLocation(time.DateOnly, s, c.now().Location()); err == nil {
		return at, nil
	}
	return time.Time{}, usageError{
		message: "--since " + term.Word(s) + " is neither a duration nor a time",
		hint:    "for example --since 90m, --since 2026-11-21 or --since 2026-11-21T14:00:00Z",
	}
}

func changedLeases(changes []api.Change) []string {
	var ids []string
	for _, ch := range changes {
		if ch.LeaseID != "" && !slices.Contains(ids, ch.LeaseID) {
			ids = append(ids, ch.LeaseID)
		}
	}
	return ids
}

func (p *page) drawHoldings(all []holding.Holding) {
	if len(all) == 0 {
		return
	}
	rows := make([][]string, len(all))
	for i, t := range all {
		from, until, ended := "earlier", "still", "-"
		if !t.From.IsZero() {
			from = p.clock(t.From)
		}
		switch {
		case !t.Until.IsZero():
			until = p.clock(t.Until)
			ended = term.Sentence(t.Why) + " by " + term.Word(t.By)
		case !holding.Open(t.Now):
			until = "earlier"
		}
		revisions := fmt.Sprint(t.First)
		if t.Last != t.First {
			revisions = fmt.Sprintf("%d-%d", t.First, t.Last)
		}
		rows[i] = []string{term.Word(t.Address), term.Word(t.Sandbox), from, until, ended, p.state(t.Now), revisions, term.Word(t.Lease)}
	}
	p.Heading("Holders, newest first")
	cols := term.Columns("ADDRESS", "SANDBOX", "FROM", "UNTIL", "ENDED", "NOW", "REVISIONS", "LEASE")
	cols[1].Yield = true
	p.Table(cols, rows)
}

// clock writes a time as logs do, where the person is.
func (p *page) clock(t time.Time) string { return t.In(p.now().Location()).Format(time.RFC3339) }
