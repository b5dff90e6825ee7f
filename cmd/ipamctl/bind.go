package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

func bindCommand(c *ctl) *cobra.Command {
	var (
		req        api.BindRequest
		containers []string
		gone       []string
	)
	cmd := &cobra.Command{
		Use:   "bind LEASE",
		Short: "Record where a lease is used",
		Long: `Records the containers, the network namespace, the host's end of the veth and
the MAC that carry the address. A lease counts as used from here on. What is
left out stays as it was recorded; a container is taken away with --gone. The
same content again changes nothing. What the kernel shows otherwise is named
in the answer, and recorded all the same. -q prints the lease id.`,
		Example: `  ipamctl bind 0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d \
      --container sandbox/web-1 --netns /run/netns/web-1 \
      --host-interface veth7 --mac 02:42:0a:08:40:07`,
		Args:              exactly("a lease id"),
		ValidArgsFunction: c.offer(asLease),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.Containers, err = someContainers("--container", containers); err != nil {
				return err
			}
			if req.Gone, err = someContainers("--gone", gone); err != nil {
				return err
			}
			return c.onLease(cmd, args[0], func(ctx context.Context, ipamd *client.Client, id string) (*api.LeaseReply, error) {
				return ipamd.Bind(ctx, id, req)
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&containers, "container", nil, "a container as `namespace/id`; may be repeated")
	f.StringArrayVar(&gone, "gone", nil, "a container that the lease has no more, as `namespace/id`; may be repeated")
	f.Int64Var(&req.IfRevision, "if-revision", 0, "refuse if the lease changed since this `revision`")
	f.StringVar(&req.Netns, "netns", "", "`path` of the network namespace")
	f.StringVar(&req.HostInterface, "host-interface", "", "the `port` of the bridge")
	f.StringVar(&req.MAC, "mac", "", "`mac` of the sandbox's interface")
	return cmd
}

// drawWarnings writes what of a bind the kernel shows otherwise.
func (p *page) drawWarnings(warnings []api.BindWarning) {
	part(p, "The kernel shows it otherwise", term.Wrapping("FIELD", "GIVEN", "SEEN", "DETAIL"), warnings, func(w api.BindWarning) []string {
		return []string{p.Warn(term.Word(w.Field)), term.Word(w.Given), term.Maybe(w.Seen), term.Sentence(w.Message)}
	})
}
