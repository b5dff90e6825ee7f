package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/docker"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/server/socket"
)

// dockerSocket is where dockerd looks for a driver of the name ipamd.
const dockerSocket = "/run/docker/plugins/ipamd.sock"

func (c *command) dockerCommand() *cobra.Command {
	var listen, at string
	cmd := &cobra.Command{
		Use:   "docker",
		Short: "Serve Docker as its IPAM driver",
		Long: `Serves dockerd as the IPAM driver "ipamd": networks have ipamd's pools, and
containers get leases. It is a client of the daemon's socket, keeps nothing, and
can be restarted at any time. Where systemd gives it a socket it uses that one.

A network names its pool by --ipam-opt pool=NAME or by its --subnet; a pool that
is not there is made, on the bridge of --ipam-opt bridge=NAME, and goes with the
network. An address that Docker releases comes free once the container's port
has gone.`,
		Example: `  ipamd docker
  docker network create --ipam-driver ipamd --subnet 10.8.64.0/24 \
    -o com.docker.network.bridge.name=rt0 sandboxes
  docker run --network sandboxes alpine ip addr`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for flag, path := range map[string]string{"listen": listen, "socket": at} {
				if path == "" {
					return usageError{fmt.Errorf("--%s is empty", flag)}
				}
			}
			log := logging.New("auto", slog.LevelInfo, c.err, os.Getenv)
			return docker.Run(cmd.Context(), socket.Config{Path: listen, Mode: 0o600, GID: -1, Given: activation.Files(true), Log: log}, at,
				func() { supervisor.Notify(log, daemon.SdNotifyReady) })
		},
	}
	cmd.Flags().StringVar(&listen, "listen", dockerSocket, "dockerd's `path`")
	cmd.Flags().StringVar(&at, "socket", api.DefaultSocket, "ipamd's socket `path`")
	return cmd
}
