package main

import (
	"context"
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/plumb/helper"
)

func (c *command) plumbCommand() *cobra.Command {
	var socket string
	var slots bool
	cmd := &cobra.Command{
		Use:   "plumb",
		Short: "Make the ports that the daemon is asked for",
		Long: `The daemon has no right to enter network namespaces. This has, keeps nothing,
and does what the daemon asks it to, on its socket: "ipamctl attach" and
"ipamctl detach" need it, and nothing else does. ipamd-plumb.service runs it.
It is to be in the network namespace of the bridge.

With --slots it makes the warm slots of pools and takes them down, and no
ports: network namespaces that are mounted below /run/netns, where all
processes of the machine see them. ipamd-warm.service runs that.`,
		Example: `  ipamd plumb
  ipamd plumb --slots
  ipamd plumb --socket ./run/ipamd.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(c.err, nil))
			supervisor.Notify(log, daemon.SdNotifyReady)
			c := &client.Client{Socket: socket}
			if slots {
				return helper.RunSlots(cmd.Context(), c, log)
			}
			leases := func(ctx context.Context) ([]api.Lease, error) {
				list, err := c.Leases(ctx, client.LeaseFilter{})
				if err != nil {
					return nil, err
				}
				return list.Leases, nil
			}
			return helper.Run(cmd.Context(), c, leases, log)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "ipamd's socket `path`; else IPAMD_SOCKET, or the default")
	cmd.Flags().BoolVar(&slots, "slots", false, "make warm slots, and no ports")
	return cmd
}
