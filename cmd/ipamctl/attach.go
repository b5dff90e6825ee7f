package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

func attachCommand(c *ctl) *cobra.Command {
	var req api.AttachRequest
	cmd := &cobra.Command{
		Use:   "attach LEASE --netns PATH | --tap",
		Short: "Make the port of a lease, in a network namespace or as a tap",
		Long: `Makes a veth pair with one end on the bridge and the other, with the addresses
and routes of the lease's interface, in the network namespace, and binds the
lease by it: all of it or nothing. With --tap it is a tap on the bridge for a
virtual machine, whose monitor opens it by the host interface of the answer; the
machine takes the address and the MAC that the answer has. The same again is the
same port. It needs ipamd-plumb: systemctl start ipamd-plumb. -q prints the
lease id.`,
		Example:           "  ip netns add web-1\n  ipamctl attach 0a1b2c3d --netns /run/netns/web-1\n  ipamctl attach 0a1b2c3d --tap -o json",
		Args:              exactly("a lease id"),
		ValidArgsFunction: c.offer(asHeld),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case req.Netns == "" && !req.Tap:
				return usageError{message: "--netns is missing: the path of the sandbox's network namespace; or --tap, for a virtual machine"}
			case req.Netns != "" && req.Tap:
				return usageError{message: "--netns and --tap exclude each other", hint: "a tap is in no network namespace"}
			}
			return c.onLease(cmd, args[0], func(ctx context.Context, ipamd *client.Client, id string) (*api.LeaseReply, error) {
				return ipamd.Attach(ctx, id, req)
			})
		},
	}
	cmd.Flags().StringVar(&req.Netns, "netns", "", "`path` of the sandbox's network namespace")
	cmd.Flags().BoolVar(&req.Tap, "tap", false, "a tap for a virtual machine, in place of a namespace")
	cmd.Flags().StringVar(&req.MAC, "mac", "", "`MAC` of the sandbox's end; without it any, with --tap one made from the address")
	cmd.Flags().Int64Var(&req.IfRevision, "if-revision", 0, "refuse if the lease changed since this `revision`")
	return cmd
}

func detachCommand(c *ctl) *cobra.Command {
	var req api.DetachRequest
	cmd := &cobra.Command{
		Use:   "detach LEASE",
		Short: "Take the port of a lease away that attach made",
		Long: `Both of its ends go, the bridge's and the sandbox's. The lease stays as it is:
release it, or attach it again. Until then doctor may find that no witness sees
the sandbox (bound_unseen), and after a while the lease is released by itself. A
lease that was released waits for its port to go; detach takes it away, too.
A port that is not there is no error; one that attach did not make is.
-q prints the lease id.`,
		Example:           "  ipamctl detach 0a1b2c3d\n  ipamctl release 0a1b2c3d",
		Args:              exactly("a lease id"),
		ValidArgsFunction: c.offer(asHeld),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.onLease(cmd, args[0], func(ctx context.Context, ipamd *client.Client, id string) (*api.LeaseReply, error) {
				r, err := ipamd.Detach(ctx, id, req)
				if err == nil {
					c.note("%s", detached(&r.Lease, args[0]))
				}
				return r, err
			})
		},
	}
	cmd.Flags().Int64Var(&req.IfRevision, "if-revision", 0, "refuse if the lease changed since this `revision`")
	return cmd
}

// detached says what became of a port, and of the lease that a person named so.
func detached(l *api.Lease, named string) string {
	if l.State == api.Reserved || l.State == api.Bound || l.State == api.Paused {
		return fmt.Sprintf("its port is taken away, and the lease stays; ipamctl release %s ends it", term.Word(named))
	}
	return "its port is taken away; the lease was released before"
}
