package main

import "github.com/spf13/cobra"

func (c *command) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration",
		Long: `Prints the configuration as ipamd run would use it, every option with its value
and its meaning. What it prints is a configuration file itself; do not redirect
it into the file that it reads, which the shell empties before that. What this
machine lacks for it, a group for one, is written to standard error as ipamd run
would, and the exit code is 2.`,
		Example: `  ipamd config
  ipamd config --config ./ipamd.toml > ./ipamd.whole.toml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, path, err := c.load(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			if err := cfg.Write(c.out); err != nil {
				return err
			}
			return cfg.CheckMachine(cmd.Context(), path)
		},
	}
	c.configFlag(cmd)
	return cmd
}
