package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/wake/catch"
	"github.com/ipamd/ipamd/wake/idle"
)

func (c *command) flushCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "flush",
		Short: "Take ipamd's rules of nftables away",
		Long: `Takes away the tables of nftables that ipamd has made in the network namespace
that this is called in, and no others: bridge ipamd, bridge ipamd-idle and
netdev ipamd-wake, and what a killed start may have left of a look at the
kernel. From then on ports may send what they were kept from, and no traffic
wakes a sandbox. A daemon that runs makes them again, so stop it before. The
package does this when it is removed.`,
		Example: `  ipamd flush`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, t := range []struct {
				name   string
				remove func(context.Context) (bool, error)
			}{{"bridge " + enforce.TableName, enforce.Remove}, {"bridge " + idle.TableName, idle.Remove}, {"netdev " + catch.TableName, catch.Remove}} {
				removed, err := t.remove(cmd.Context())
				if err != nil {
					return fmt.Errorf("take table %s away: %w", t.name, err)
				}
				if removed {
					fmt.Fprintf(c.out, "table %s is gone\n", t.name)
				}
			}
			return nil
		},
	}
}
