package docker

import (
	"context"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/server/socket"
)

// Run opens the socket that dockerd looks for and serves on it until ctx ends, as a client of
// the daemon whose socket is at path. It calls ready once dockerd can connect.
func Run(ctx context.Context, c socket.Config, path string, ready func()) error {
	ln, err := socket.Open(c)
	if err != nil {
		return err
	}
	ipamd := &client.Client{Socket: path}
	defer ipamd.CloseIdleConnections()
	running, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan struct{})
	go func() { // makes the socket anew where its file is removed
		defer close(watched)
		_ = ln.Run(running) // it has no error
	}()
	ready()
	c.Log.Info("ready for Docker", "socket", c.Path, "daemon", path)
	err = (&Driver{Client: ipamd, Log: c.Log, Routes: HostRoutes, NameServers: HostNameServers, Links: HostLinks}).Serve(ctx, ln)
	stop()
	<-watched
	return err
}
