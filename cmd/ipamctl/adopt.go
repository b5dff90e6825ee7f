package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

func quarantineAdopt(c *ctl) *cobra.Command {
	var (
		req        api.AdoptRequest
		containers []string
	)
	cmd := &cobra.Command{
		Use:   "adopt IP",
		Short: "Give a quarantined address to the sandbox that lives with it",
		Long: `Makes a quarantined address the bound lease of a sandbox, on your word: for one
that lives with it and that no label names, after a rebuild. What the quarantine
knows of its former lease (whois shows it) need not be said again. Refused
when a witness sees the address elsewhere. Wants admin rights. -q prints the
lease id.`,
		Example: `  ipamctl quarantine adopt 10.8.64.7 --reason "the book was lost"
  ipamctl quarantine adopt 10.8.64.9 --sandbox web-1 --reason "started by hand"`,
		Args:              exactly("an IP address"),
		ValidArgsFunction: c.offer(asQuarantined),
		PreRunE:           wantsReason(&req.Reason),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.Containers, err = someContainers("--container", containers); err != nil {
				return err
			}
			return c.onAddress(cmd, args[0], leaseID, func(ctx context.Context, ipamd *client.Client, addr string) (*api.LeaseReply, error) {
				return ipamd.Adopt(ctx, addr, req)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Sandbox, "sandbox", "", "the `sandbox`; left out it is the one that the quarantine names")
	f.StringVar(&req.UID, "uid", "", "its incarnation, where that is not its name")
	f.StringVar(&req.Interface, "interface", "", "the `interface` inside the sandbox")
	f.StringVar(&req.LeaseID, "lease", "", "the `id` of its former lease")
	f.StringArrayVar(&containers, "container", nil, "a container as `namespace/id`; may be repeated")
	f.StringVar(&req.Netns, "netns", "", "`path` of the network namespace")
	f.StringVar(&req.HostInterface, "host-interface", "", "the `port` of the bridge")
	f.StringVar(&req.MAC, "mac", "", "`mac` of the sandbox's interface")
	f.StringVar(&req.Reason, "reason", "", "`why`, for the history")
	return cmd
}
