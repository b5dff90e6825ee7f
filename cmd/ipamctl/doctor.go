package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// helped is a finding with where to read about its kind.
type helped struct {
	api.Finding
	Help string `json:"help"` // the command that explains its kind
}

// A diagnosis is doctor's answer with the help of this end.
type diagnosis struct {
	Findings []helped `json:"findings"`
	Revision int64    `json:"revision"`
	Epoch    string   `json:"epoch"`
}

func help(reply *api.DoctorReply) diagnosis {
	d := diagnosis{make([]helped, len(reply.Findings)), reply.Revision, reply.Epoch}
	for i, f := range reply.Findings {
		d.Findings[i] = helped{f, explain(f.Kind)}
	}
	return d
}

func doctorCommand(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Where book, wire and runtime disagree, and what repairs it",
		Long: `Lists every disagreement, with the command that repairs it or shows how. What
follows from another finding is counted behind it, and ends with it; -o json
and yaml list them all. ipamctl explain KIND says what a kind means. The exit
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
			if err := c.answer(help(reply), where, func(p *page) { p.drawFindings(reply.Findings) }); err != nil {
				return err
			}
			if len(reply.Findings) > 0 {
				return exitWith(exitOther)
			}
			return nil
		},
	}
}

// drawFindings writes the findings that have a cause of their own, each in three
// lines: what and where, why, and the command.
func (p *page) drawFindings(findings []api.Finding) {
	if len(findings) == 0 {
		p.Line("%s: book, wire and runtime agree", p.Good("nothing found"))
		return
	}
	follow := make(map[string][]string) // kinds, by that of their cause
	for _, f := range findings {
		follow[f.Because] = append(follow[f.Because], f.Kind)
	}
	for i, f := range findings {
		if f.Because != "" {
			continue
		}
		what := []string{p.Bad(term.Word(f.Kind))}
		switch {
		case f.Address != "" && f.Count > 1:
			what = append(what, fmt.Sprintf("%s and %d more", term.Word(f.Address), f.Count-1))
		case f.Address != "":
			what = append(what, term.Word(f.Address))
		case f.LeaseID != "":
			what = append(what, term.Word(f.LeaseID))
		}
		if !f.Since.IsZero() {
			what = append(what, p.ago(f.Since))
		}
		if i > 0 {
			p.Line("")
		}
		p.Text("", strings.Join(what, " "))
		p.Text("  ", term.Sentence(f.Detail))
		if kinds := follow[f.Kind]; len(kinds) > 0 {
			follows := " follow from it and end with it: "
			if len(kinds) == 1 {
				follows = " follows from it and ends with it: "
			}
			p.Text("  ", p.Dim(term.Plural(len(kinds), "finding")+follows+strings.Join(slices.Compact(kinds), ", ")))
			delete(follow, f.Kind)
		}
		p.Line("  %s %s", p.Dim("next:"), term.Sentence(f.Repair)) // to be copied, so it is not wrapped
	}
	p.Line("")
	p.Text("", term.Plural(len(findings), "finding")+"; what one means: "+explain(findings[0].Kind))
}
