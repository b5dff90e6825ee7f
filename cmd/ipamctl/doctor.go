package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
)

// operations is the page for whoever runs ipamd; each kind of finding has its
// meaning, its cause and its next command there.
const operations = "https://github.com/ipamd/ipamd/blob/main/docs/OPERATIONS.md"

// helped is a finding with where to read about its kind.
type helped struct {
	api.Finding
	Help string `json:"help"` // where operations tells of its kind
}

// A diagnosis is doctor's answer with the help of this end.
type diagnosis struct {
	Findings []helped `json:"findings"`
	Revision int64    `json:"revision"`
	Epoch    string   `json:"epoch"`
}

// readAbout is where operations tells of a kind of finding.
func readAbout(kind string) string { return operations + "#finding-" + kind }

func help(reply *api.DoctorReply) diagnosis {
	d := diagnosis{make([]helped, len(reply.Findings)), reply.Revision, reply.Epoch}
	for i, f := range reply.Findings {
		d.Findings[i] = helped{f, readAbout(f.Kind)}
	}
	return d
}

func (c *ctl) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Where book, wire and runtime disagree, and what mends it",
		Long: `Lists every disagreement, a line each, with the command that mends it, and below
where to read about each kind; -o json and yaml have that as help. The exit code
is 0 when all agree and 1 when there is any finding. -q prints the addresses, or
the lease ids of findings that have no address.`,
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
			draw := func(p *page) {
				c.drawFindings(p, reply.Findings)
				drawExplained(p, reply.Findings)
			}
			if err := c.answer(help(reply), where, draw); err != nil {
				return err
			}
			if len(reply.Findings) > 0 {
				return told(exitOther)
			}
			return nil
		},
	}
}

// drawExplained names the place of each kind that was found, once and whole, so
// that a terminal can open it. A link is not wrapped: a broken one leads nowhere.
func drawExplained(p *page, findings []api.Finding) {
	var kinds []string
	for _, f := range findings {
		if !slices.Contains(kinds, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
	}
	if len(kinds) == 0 {
		return
	}
	p.heading("What each means, and what to do")
	for _, kind := range kinds {
		p.line("  %s", readAbout(word(kind)))
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
		if f.Count > 1 {
			where = fmt.Sprintf("%s and %d more", where, f.Count-1)
		}
		rows[i] = []string{p.bad(word(f.Kind)), where, c.ago(f.Since), sentence(f.Detail), sentence(f.Mend)}
	}
	p.table(columns("FINDING", "WHERE", "SINCE", "DETAIL", "MEND"), rows)
	p.line("\n%s", plural(len(findings), "finding"))
}
