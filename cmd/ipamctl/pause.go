package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

func pauseCommand(c *ctl) *cobra.Command {
	return pausing(c, "pause", "Say that a sandbox is frozen or hibernated", `Its address stays its own without limit, whatever the witnesses see of it. A
lease that is paused already stays so. -q prints the lease id.`, (*client.Client).Pause)
}

func resumeCommand(c *ctl) *cobra.Command {
	return pausing(c, "resume", "Say that a paused sandbox runs again", `Ends a pause: the lease counts as used again. One that is not paused stays as
it is. -q prints the lease id.`, (*client.Client).Resume)
}

// pausing is the verb pause or resume, which ask does.
func pausing(c *ctl, verb, short, long string, ask func(*client.Client, context.Context, string, api.PauseRequest) (*api.LeaseReply, error)) *cobra.Command {
	var req api.PauseRequest
	cmd := &cobra.Command{
		Use: verb + " LEASE", Short: short, Long: long,
		Example:           fmt.Sprintf("  ipamctl %s 0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d\n  ipamctl %[1]s 0a1b2c3d", verb),
		Args:              exactly("a lease id"),
		ValidArgsFunction: c.offer(asLease),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.onLease(cmd, args[0], func(ctx context.Context, ipamd *client.Client, id string) (*api.LeaseReply, error) {
				return ask(ipamd, ctx, id, req)
			})
		},
	}
	cmd.Flags().Int64Var(&req.IfRevision, "if-revision", 0, "refuse if the lease changed since this `revision`")
	return cmd
}

func cancelCommand(c *ctl) *cobra.Command {
	var req api.CancelRequest
	cmd := &cobra.Command{
		Use:   "cancel UID --attempt NUMBER",
		Short: "Refuse the attempts of a sandbox up to a number",
		Long: `Refuses each allocation for this sandbox uid whose attempt is not above the
number, also one that arrives later, and releases what these attempts hold. A
sandbox without a uid has its name for one. -q prints the ids of the released
leases.`,
		Example:           "  ipamctl cancel web-1 --attempt 3",
		Args:              exactly("the sandbox's uid"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Attempt < 1 {
				return usageError{message: "cancel wants --attempt, 1 or more"}
			}
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			req.UID = args[0]
			reply, err := ipamd.Cancel(ctx, req)
			if err != nil {
				return err
			}
			return c.answer(reply, leaseIDs(reply.Released), func(p *page) {
				p.Line("attempts of %s up to %d are refused, %s released", term.Word(req.UID), req.Attempt, term.Plural(len(reply.Released), "lease"))
				if len(reply.Released) > 0 {
					p.drawLeases(reply.Released)
				}
			})
		},
	}
	cmd.Flags().Int64Var(&req.Attempt, "attempt", 0, "the highest `number` of an attempt that is refused, from 1")
	return cmd
}
