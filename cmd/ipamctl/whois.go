package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

func whoisCommand(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:   "whois IP",
		Short: "Who holds an address, what witnesses say of it, and its history",
		Long: `Asks the book and every witness about one address. It only reads: no verb frees
by address. "Not seen" is worth something only when no witness is silent. -q
prints the lease id, or nothing when no lease holds it.`,
		Example:           "  ipamctl whois 10.8.64.7\n  ipamctl whois fd00:8:64::7 -o json",
		Args:              exactly("an IP address"),
		ValidArgsFunction: c.offer(asAddress),
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
			return c.answer(reply, ids, func(p *page) { p.drawWhois(reply) })
		},
	}
}

func (p *page) drawWhois(w *api.WhoisReply) {
	p.Line("%s %s", p.Bold(term.Word(w.Address)), p.verdict(w))
	if warning := contradiction(w); warning != "" {
		p.Line("%s", p.Bad(warning))
	}
	if w.Lease != nil {
		p.drawLeaseFields(w.Lease)
		p.drawConflict(w.Lease)
	} else if w.Withheld != nil {
		p.Fields([2]string{"pool", term.Word(w.Withheld.Pool) + ", removed"}, [2]string{"since", p.ago(w.Withheld.Since)},
			[2]string{"why", p.whyWithheld(w.Withheld)}, [2]string{"sandbox", term.Word(w.Withheld.Sandbox)})
	} else if w.Pool != "" {
		p.Fields([2]string{"pool", term.Word(w.Pool)})
	}
	if w.KeptFor != "" && w.KeptFor != w.Owner && w.State != api.Free {
		p.Line("%s", p.Warn("Its pool keeps it for "+term.Word(w.KeptFor)))
	}
	p.Heading("Witnesses")
	var rows [][]string
	for _, a := range w.Witnesses {
		rows = append(rows, p.witnessRows(a)...)
	}
	if len(rows) == 0 {
		p.Line("no witness was asked: the address is in no pool")
	} else {
		p.Table(term.Wrapping("WITNESS", "ANSWER", "DETAIL"), rows)
	}

	if w.Lease != nil {
		part(p, "Evidence kept with the lease", term.Wrapping("WITNESS", "SAW"), w.Lease.Evidence, func(s api.Sighting) []string {
			return []string{term.Word(s.Witness), p.seen(s)}
		})
	}

	p.Heading("History, newest first")
	if len(w.History) == 0 {
		p.Line("nothing is recorded")
		return
	}
	p.drawChanges(w.History, false)
}

// verdict is the answer in one sentence.
func (p *page) verdict(w *api.WhoisReply) string {
	switch {
	case w.Withheld != nil && w.Lease == nil && w.Owner == "":
		return "is withheld: it was " + p.state(w.Withheld.State) + " when its pool was removed"
	case w.Pool == "":
		return "is in no pool"
	case w.State == api.Free && !w.Usable:
		return "is never handed out: " + term.Sentence(w.Note)
	case w.State == api.Free && w.KeptFor != "":
		return "is " + p.state(w.State) + ", and kept for " + term.Word(w.KeptFor)
	case w.State == api.Free:
		return "is " + p.state(w.State) + ", it has no owner"
	case w.Owner != "" && disputed(w):
		return p.Bad("is in conflict") + ": " + p.state(w.State) + ", it belongs to " + term.Word(w.Owner) + ", and another uses it"
	case w.Owner != "":
		return "is " + p.state(w.State) + ", it belongs to " + term.Word(w.Owner)
	case w.State == api.Quarantined:
		if w.Lease != nil && w.Lease.Hold != "" {
			return "is " + p.state(w.State) + ", and is not given until it is cleared: " + term.Sentence(w.Lease.Hold)
		}
		return "is " + p.state(w.State) + ", and is not given while it is seen"
	default:
		return "is " + p.state(w.State) + ", it has no owner"
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
// be compared: the two things that a person on call must not overlook.
func contradiction(w *api.WhoisReply) string {
	var seen, silent []string
	for _, a := range w.Witnesses {
		switch a.Answer {
		case "seen":
			seen = append(seen, term.Word(a.Witness))
		case "silent":
			silent = append(silent, term.Word(a.Witness))
		}
	}
	unowned := w.Usable && w.Owner == "" && w.State != api.Quarantined
	switch {
	case unowned && len(seen) > 0:
		return "The book has no owner for it, yet it is in use: seen by " + strings.Join(seen, ", ")
	case len(silent) > 0 && len(seen) == 0:
		return "Could not ask " + strings.Join(silent, ", ") + ": not seen is no proof"
	default:
		return ""
	}
}

// whose marks a sighting of a held address; "" is one of no lease.
func (p *page) whose(s api.Sighting) string {
	switch s.Belongs {
	case "":
		return ""
	case api.Stranger:
		return p.Bad(string(s.Belongs))
	}
	return term.Sentence(string(s.Belongs))
}

// witnessRows is one row a sighting, or one that says there is none.
func (p *page) witnessRows(a api.WitnessAnswer) [][]string {
	answer := term.Sentence(a.Answer)
	switch a.Answer {
	case "seen":
		answer = p.Good(answer)
	case "silent":
		answer = p.Warn(answer)
	}
	rows := [][]string{}
	for _, s := range a.Seen {
		is := answer
		if whose := p.whose(s); whose != "" {
			is += ", " + whose
		}
		rows = append(rows, []string{term.Word(a.Witness), is, p.seen(s)})
	}
	if len(rows) == 0 {
		rows = append(rows, []string{term.Word(a.Witness), answer, term.Sentence(a.Reason)})
	}
	return rows
}

// because is why a change was made, with the words of a person who made it.
func because(ch api.Change) string {
	if ch.Note == "" {
		return term.Sentence(ch.Reason)
	}
	return term.Sentence(ch.Reason) + ": " + term.Sentence(ch.Note)
}

// drawChanges writes part of the history.
func (p *page) drawChanges(changes []api.Change, withAddress bool) {
	columns := func(cells ...string) []string {
		if !withAddress {
			return slices.Delete(cells, 2, 3)
		}
		return cells
	}
	cols := term.Columns(columns("REVISION", "WHEN", "ADDRESS", "MOVE", "REASON", "SANDBOX", "BY", "LEASE")...)
	cols[0].Right, cols[len(cols)-3].Yield, cols[len(cols)-2].Yield = true, true, true
	table(p, cols, changes, func(ch api.Change) []string {
		by := term.Word(ch.Actor)
		if ch.Peer != "" {
			by += " (" + term.Sentence(ch.Peer) + ")"
		}
		return columns(fmt.Sprint(ch.Revision), p.ago(ch.At), term.Maybe(ch.Address), p.state(ch.From)+" → "+p.state(ch.To),
			because(ch), term.Maybe(cmp.Or(ch.Sandbox, ch.UID)), by, term.Maybe(ch.LeaseID))
	})
}
