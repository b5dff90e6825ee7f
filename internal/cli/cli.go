// Package cli is what the command lines of our programs have in common: how they answer
// a verb that is not there, and how they write completions.
package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// KnownVerb is the Args of a command that has verbs: it refuses what is none of them, with
// the nearest ones.
func KnownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	message := fmt.Sprintf("%s has no verb %q", cmd.CommandPath(), args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(message)
}

// Complete gives cobra's completion verb examples, and has it refuse a shell that it does
// not know. By itself it prints its help and calls that a success, which a script takes
// for the completion.
func Complete(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Example = strings.ReplaceAll("  source <(PROGRAM completion bash)\n"+
				"  PROGRAM completion zsh > ~/.zfunc/_PROGRAM          # a folder of $fpath\n"+
				"  PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish", "PROGRAM", root.Name())
			cmd.Args = KnownVerb
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}
