package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/docs"
	"github.com/ipamd/ipamd/internal/term"
)

// An explanation is what the page for operators says of one kind of finding or
// of one alert.
type explanation struct {
	Kind string `json:"kind"`
	Text string `json:"text"` // Markdown
}

// explanations reads the page for operators. A section begins with a heading of
// the third rank that has an anchor, and ends with the next heading of that rank
// or above.
func explanations() (all []explanation) {
	begins := regexp.MustCompile(`^### <a id="(?:finding|alert)-[^"]+"></a>(.+)$`)
	ends := regexp.MustCompile(`^#{1,3} `)
	open := false
	for line := range strings.Lines(docs.Operations) {
		line = strings.TrimRight(line, "\n")
		switch m := begins.FindStringSubmatch(line); {
		case m != nil:
			all, open = append(all, explanation{Kind: m[1]}), true
		case ends.MatchString(line):
			open = false
		case open:
			all[len(all)-1].Text += line + "\n"
		}
	}
	for i := range all {
		all[i].Text = strings.TrimSpace(all[i].Text) + "\n"
	}
	return all
}

func kindsExplained() (kinds []string) {
	for _, e := range explanations() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// explain is the command that explains a kind.
func explain(kind string) string { return "ipamctl explain " + term.Word(kind) }

func explainCommand(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [KIND]",
		Short: "What a finding or an alert means, and what to do",
		Long: `Prints what the operator's page says of a kind of finding, as doctor and status
name them, or of an alert; without an argument it lists them. No daemon is
asked. -q prints the kinds.`,
		Example: "  ipamctl explain bridge_not_ready\n  ipamctl explain IpamdNotReady",
		Args:    atMost("a kind of finding or an alert"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return kindsExplained(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			all := explanations()
			if len(args) == 0 {
				return c.answer(all, kindsExplained(), func(p *page) {
					for _, e := range all {
						p.Line("%s", e.Kind)
					}
				})
			}
			at := slices.IndexFunc(all, func(e explanation) bool { return strings.EqualFold(e.Kind, args[0]) })
			if at < 0 {
				return fmt.Errorf("explain %s: %w", term.Word(args[0]), &api.Error{Code: api.NotFound,
					Message: "there is no such finding and no such alert", Details: map[string]any{"kind": args[0]}})
			}
			return c.answer(all[at], []string{all[at].Kind}, func(p *page) {
				p.Line("%s", p.Bold(all[at].Kind))
				p.Markdown(all[at].Text)
			})
		},
	}
}
