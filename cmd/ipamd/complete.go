package main

import "github.com/spf13/cobra"

// completeShells gives cobra's completion verb examples, and has it refuse a shell
// that it does not know. By itself it prints its help and calls that a success,
// which a script takes for the completion.
func (c *command) completeShells() {
	c.root.InitDefaultCompletionCmd()
	for _, cmd := range c.root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Example = "  source <(ipamd completion bash)\n" +
				"  ipamd completion zsh > ~/.zfunc/_ipamd          # a folder of $fpath\n" +
				"  ipamd completion fish > ~/.config/fish/completions/ipamd.fish"
			cmd.Args = knownVerb
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}
