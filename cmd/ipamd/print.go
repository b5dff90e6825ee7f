package main

import "github.com/spf13/cobra"

func (c *command) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration",
		Long: `Prints the configuration as ipamd run would use it, every option with its value
and its meaning. What it prints is a configuration file itself.`,
		Example: `  ipamd config > /etc/ipamd/ipamd.toml
  ipamd config --config ./ipamd.toml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := c.load(cmd)
			if err != nil {
				return err
			}
			return cfg.write(c.out)
		},
	}
	c.configFlag(cmd)
	return cmd
}
