package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/docs"
	"github.com/ipamd/ipamd/internal/term"
)

func kindsExplained() (kinds []string) {
	for _, e := range docs.Explanations() {
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
name them, or of an alert; without an argument it lists them. The whole page is
OPERATIONS.md, in the package's /usr/share/doc/ipamd. No daemon is asked. -q
prints the kinds.`,
		Example: "  ipamctl explain bridge_not_ready\n  ipamctl explain IpamdNotReady",
		Args:    atMost("a kind of finding or an alert"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return kindsExplained(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			all := docs.Explanations()
			if len(args) == 0 {
				return c.answer(all, kindsExplained(), func(p *page) {
					for _, e := range all {
						p.Line("%s", e.Kind)
					}
				})
			}
			at := slices.IndexFunc(all, func(e docs.Explanation) bool { return strings.EqualFold(e.Kind, args[0]) })
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
