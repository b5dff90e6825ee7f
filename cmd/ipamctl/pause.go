package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

func pauseCommand(c *ctl) *cobra.Command {
	cmd, req := pausing(c, "pause", "Say that a sandbox is frozen or hibernated", `Its address stays its own without limit, whatever the witnesses see of it. A
lease that is paused already stays so. With --mode what wakes it is recorded:
no traffic by default, and ipamctl wake always. -q prints the lease id.`, (*client.Client).Pause)
	cmd.Example += "\n  ipamctl pause 0a1b2c3d --mode freeze --wake-port 80 --wake-from 10.8.64.0/24"
	var wake api.WakePolicy
	var any bool
	var wait, again time.Duration
	f := cmd.Flags()
	f.StringVar((*string)(&req.Mode), "mode", "", "`freeze`: its tasks stand still; hibernate: they are gone")
	f.BoolVar(&req.Do, "do", false, "have ipamd freeze the tasks: wants wake.resumer containerd or exec")
	f.BoolVar(&any, "wake", false, "traffic wakes it: TCP, unless --wake-protocol says otherwise")
	f.StringArrayVar(&wake.Ports, "wake-port", nil, "traffic to this `port`, or range like 8000-8100, wakes it; may be repeated")
	f.StringArrayVar(&wake.Sources, "wake-from", nil, "traffic from this `address` or prefix wakes it; may be repeated")
	f.StringArrayVar(&wake.Protocols, "wake-protocol", nil, "traffic of this `protocol` wakes it: tcp, udp or icmp; may be repeated")
	f.DurationVar(&wait, "wake-wait", 0, "how long a wake may last, a `duration`")
	f.DurationVar(&again, "repause-after", 0, "have ipamd pause it again after this `duration` without traffic")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if any || f.Changed("wake-port") || f.Changed("wake-from") || f.Changed("wake-protocol") || wait != 0 || again != 0 {
			req.Wake = &wake
			if again != 0 {
				wake.RepauseAfter = api.Lasting(again)
			}
			if wait != 0 {
				wake.Wait = api.Lasting(wait)
			}
		}
		if req.Mode == "" && (req.Do || req.Wake != nil) {
			return usageError{message: "name --mode freeze or hibernate, too, to say what wakes a sandbox or who pauses it"}
		}
		return nil
	}
	return cmd
}

func wakeCommand(c *ctl) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "wake LEASE", Short: "Have a paused sandbox woken",
		Long: `Joins the wake that is under way, or begins one. One that is not paused stays
as it is. That it is bound means that the network can pass, not that the
application is ready. -q prints the lease id.`,
		Example:           "  ipamctl wake 0a1b2c3d --wait 10s",
		Args:              exactly("a lease id"),
		ValidArgsFunction: c.offer(asHeld),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait < 0 || wait > time.Minute {
				return usageError{message: "--wait is from 0s to 60s"}
			}
			var req api.WakeRequest
			if wait > 0 {
				req.Wait = api.Lasting(wait)
			}
			ctx, cancel, ipamd := c.call(cmd, wait)
			defer cancel()
			id, err := c.leaseNamed(ctx, ipamd, args[0], itsLeases)
			if err != nil {
				return err
			}
			reply, err := ipamd.Wake(ctx, id, req)
			if err != nil {
				return err
			}
			return c.answer(reply, []string{reply.Lease.ID}, func(p *page) { p.drawLease(&reply.Lease) })
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait for this `duration`, at most 60s, until it is bound")
	return cmd
}

func resumeCommand(c *ctl) *cobra.Command {
	cmd, _ := pausing(c, "resume", "Say that a paused sandbox runs again", `Ends a pause: the lease counts as used again. Tasks that ipamd froze it resumes
first. One that is not paused stays as it is. -q prints the lease id.`, (*client.Client).Resume)
	return cmd
}

// pausing is the verb pause or resume, which ask does.
func pausing(c *ctl, verb, short, long string, ask func(*client.Client, context.Context, string, api.PauseRequest) (*api.LeaseReply, error)) (*cobra.Command, *api.PauseRequest) {
	var req api.PauseRequest
	cmd := &cobra.Command{
		Use: verb + " LEASE", Short: short, Long: long,
		Example:           fmt.Sprintf("  ipamctl %s 0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d\n  ipamctl %[1]s 0a1b2c3d", verb),
		Args:              exactly("a lease id"),
		ValidArgsFunction: c.offer(asHeld),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.onLease(cmd, args[0], func(ctx context.Context, ipamd *client.Client, id string) (*api.LeaseReply, error) {
				return ask(ipamd, ctx, id, req)
			})
		},
	}
	cmd.Flags().Int64Var(&req.IfRevision, "if-revision", 0, "refuse if the lease changed since this `revision`")
	return cmd, &req
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
			if looksLikeLease(req.UID) { // most runtimes have such uids too
				l, err := ipamd.Lease(ctx, req.UID)
				if errors.Is(err, client.ErrLeaseGone) || err == nil && l.Lease.UID != req.UID {
					return usageError{
						message: req.UID + " is a lease; cancel names a sandbox by its uid",
						hint:    "whose lease it is: ipamctl history --lease " + req.UID,
					}
				}
			}
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
