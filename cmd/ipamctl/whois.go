package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
)

func (c *ctl) whoisCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "whois IP",
		Short: "Who holds an address, what every witness says of it, and its history",
		Long: `Asks the book and every witness about one address. It only reads: no verb frees
by address. "Not seen" is worth something only when no witness is silent. -q
prints the lease id, or nothing when nobody holds the address.`,
		Example:           "  ipamctl whois 10.8.64.7\n  ipamctl whois fd00:8:64::7 -o json",
		Args:              exactly("an IP address"),
		ValidArgsFunction: c.addresses,
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := anAddress(args[0])
			if err != nil {
				return err
			}
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			reply, err := ipamd.Whois(ctx, addr)
			if err != nil {
				return err
			}
			var ids []string
			if reply.Lease != nil {
				ids = []string{reply.Lease.ID}
			}
			return c.answer(reply, ids, func(p *page) { c.drawWhois(p, reply) })
		},
	}
}

func (c *ctl) drawWhois(p *page, w *api.WhoisReply) {
	p.line("%s %s", p.bold(word(w.Address)), verdict(p, w))
	if warning := contradiction(w); warning != "" {
		p.line("%s", p.bad(warning))
	}
	if w.Lease != nil {
		c.drawLeaseFields(p, w.Lease)
	} else if w.Pool != "" {
		p.fields([2]string{"pool", word(w.Pool)})
	}

	if w.Lease != nil {
		c.drawConflict(p, w.Lease)
	}
	p.heading("Witnesses")
	var rows [][]string
	for _, a := range w.Witnesses {
		rows = append(rows, c.witnessRows(p, a)...)
	}
	if len(rows) == 0 {
		p.line("nobody was asked: the address is none of ipamd's")
	} else {
		p.table(wrapping("WITNESS", "ANSWER", "DETAIL"), rows)
	}

	if l := w.Lease; l != nil && len(l.Evidence) > 0 {
		p.heading("Evidence kept with the lease")
		rows := make([][]string, len(l.Evidence))
		for i, s := range l.Evidence {
			rows[i] = []string{word(s.Witness), c.seen(s)}
		}
		p.table(wrapping("WITNESS", "SAW"), rows)
	}

	p.heading("History, newest first")
	if len(w.History) == 0 {
		p.line("nothing is recorded")
		return
	}
	c.drawChanges(p, w.History, false)
}

// verdict is the answer in one sentence.
func verdict(p *page, w *api.WhoisReply) string {
	switch {
	case w.Pool == "":
		return "is in no pool"
	case w.State == api.Free && !w.Usable:
		return "is never handed out: " + sentence(w.Note)
	case w.State == api.Free:
		return "is " + p.state(w.State) + ", nobody owns it"
	case w.Owner != "" && disputed(w):
		return p.bad("is in conflict") + ": " + p.state(w.State) + ", it belongs to " + word(w.Owner) + ", and another uses it"
	case w.Owner != "":
		return "is " + p.state(w.State) + ", it belongs to " + word(w.Owner)
	case w.State == api.Quarantined:
		if w.Lease != nil && w.Lease.Hold != "" {
			return "is " + p.state(w.State) + ", nobody gets it until it is cleared: " + sentence(w.Lease.Hold)
		}
		return "is " + p.state(w.State) + ", nobody gets it while it is seen"
	default:
		return "is " + p.state(w.State) + ", nobody owns it"
	}
}

// disputed reports that another than the owner uses the address: by what the
// witnesses see now, or by what the book says while that is not certainly over.
func disputed(w *api.WhoisReply) bool {
	for _, a := range w.Witnesses {
		for _, s := range a.Seen {
			if s.Belongs == api.Stranger {
				return true
			}
		}
	}
	return w.Lease != nil && len(w.Lease.Conflict) > 0
}

// contradiction says where book and wire disagree, or where they could not
// be compared: the two things that somebody woken up must not overlook.
func contradiction(w *api.WhoisReply) string {
	var seen, silent []string
	for _, a := range w.Witnesses {
		switch a.Answer {
		case "seen":
			seen = append(seen, word(a.Witness))
		case "silent":
			silent = append(silent, word(a.Witness))
		}
	}
	nobody := w.Usable && w.Owner == "" && w.State != api.Quarantined
	switch {
	case nobody && len(seen) > 0:
		return "Nobody owns it in the book, yet it is in use: seen by " + strings.Join(seen, ", ")
	case len(silent) > 0 && len(seen) == 0:
		return "Could not ask " + strings.Join(silent, ", ") + ": that nobody saw it is no proof"
	default:
		return ""
	}
}

// whose marks a sighting of a held address.
func whose(p *page, s api.Sighting) string {
	switch s.Belongs {
	case "":
		return ""
	case api.Stranger:
		return ", " + p.bad(string(s.Belongs))
	}
	return ", " + sentence(string(s.Belongs))
}

// witnessRows is one row a sighting, or one that says there is none.
func (c *ctl) witnessRows(p *page, a api.WitnessAnswer) [][]string {
	answer := sentence(a.Answer)
	switch a.Answer {
	case "seen":
		answer = p.good(answer)
	case "silent":
		answer = p.warn(answer)
	}
	rows := [][]string{}
	for _, s := range a.Seen {
		rows = append(rows, []string{word(a.Witness), answer + whose(p, s), c.seen(s)})
	}
	if len(rows) == 0 {
		rows = append(rows, []string{word(a.Witness), answer, sentence(a.Reason)})
	}
	return rows
}

// drawChanges writes part of the history.
// because is why a change was made, with the words of a person who made it.
func because(ch api.Change) string {
	if ch.Note == "" {
		return sentence(ch.Reason)
	}
	return sentence(ch.Reason) + ": " + sentence(ch.Note)
}

func (c *ctl) drawChanges(p *page, changes []api.Change, withAddress bool) {
	rows := make([][]string, len(changes))
	for i, ch := range changes {
		by := word(ch.Actor)
		if ch.Peer != "" {
			by += " (" + sentence(ch.Peer) + ")"
		}
		row := []string{
			fmt.Sprint(ch.Revision), c.ago(ch.At), maybe(ch.Address),
			p.state(ch.From) + " → " + p.state(ch.To),
			because(ch), maybe(cmp.Or(ch.Sandbox, ch.UID)), by, maybe(ch.LeaseID),
		}
		if !withAddress {
			row = slices.Delete(row, 2, 3)
		}
		rows[i] = row
	}
	cols := columns("REVISION", "WHEN", "ADDRESS", "MOVE", "REASON", "SANDBOX", "BY", "LEASE")
	cols[0].right, cols[5].yield, cols[6].yield = true, true, true
	if !withAddress {
		cols = slices.Delete(cols, 2, 3)
	}
	p.table(cols, rows)
}
