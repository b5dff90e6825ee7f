package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
)

func (c *ctl) releaseCommand() *cobra.Command {
	var (
		req    api.ReleaseRequest
		wait   time.Duration
		force  bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "release LEASE",
		Short: "Let a lease go",
		Long: `Records that the owner is done with its address. The address becomes reusable
only after the removal of the workload is confirmed, by the runtime and by
the kernel, and after the cooldown. What still stands in the way is listed.

Without --wait the answer is 0 as soon as the wish is recorded. With --wait
the code is 5 when the confirmation did not come in time; the wish stays
recorded. A lease that is gone already is released already. -q prints the
lease id.

A removal that can never be confirmed, because the runtime that had the
containers is lost, is ended with --force: the address is quarantined, and
rests once every witness has not seen it for long enough. Wants admin rights.`,
		Example: `  ipamctl release 0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d
  ipamctl release 0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d --uid web-1 --wait 10s
  ipamctl release 0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d --force \
      --reason "its containerd is lost"`,
		Args:              exactly("a lease id"),
		ValidArgsFunction: c.leaseIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := aLease(args[0])
			if err != nil {
				return err
			}
			if force != (strings.TrimSpace(reason) != "") {
				return usageError{message: "release wants --force and --reason together", hint: "the history keeps the reason"}
			}
			if wait < 0 {
				return usageError{message: "--wait must not be negative"}
			}
			if wait > 0 {
				req.Wait = api.Lasting(wait)
			}
			ctx, cancel, ipamd := c.call(cmd, wait)
			defer cancel()
			reply, err := ipamd.Release(ctx, id, req)
			if err != nil {
				return err
			}
			if force && reply.Lease.State == api.Releasing {
				if reply, err = ipamd.ForceRelease(ctx, id, api.ForceReleaseRequest{Reason: reason}); err != nil {
					return err
				}
			}
			if err := c.answer(reply, []string{reply.Lease.ID}, func(p *page) { drawRelease(p, reply) }); err != nil {
				return err
			}
			if wait > 0 && reply.Lease.State == api.Releasing {
				return unconfirmed{
					message: fmt.Sprintf("release %s: not confirmed within %s", reply.Lease.Address, wait),
					hint:    "the release is recorded and goes on; how far it is: ipamctl show " + word(id),
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.UID, "uid", "", "refuse unless the lease is this `uid`'s")
	f.Int64Var(&req.IfRevision, "if-revision", 0, "refuse if the lease changed since this `revision`")
	f.BoolVar(&force, "force", false, "quarantine the address when the removal is not confirmed")
	f.StringVar(&reason, "reason", "", "`why` it is forced, for the history")
	f.DurationVar(&wait, "wait", 0, "wait this `duration` for the confirmation, on top of --timeout; at most 1m")
	return cmd
}

func drawRelease(p *page, r *api.LeaseReply) {
	l := &r.Lease
	switch l.State {
	case api.Free:
		p.line("%s is %s", p.bold(word(l.Address)), p.state(l.State))
	case api.Cooling:
		p.line("%s is %s: removal is confirmed, it waits out its cooldown", p.bold(word(l.Address)), p.state(l.State))
	case api.Quarantined:
		p.line("%s is %s: it rests once nobody has seen it for long enough", p.bold(word(l.Address)), p.state(l.State))
	default:
		p.line("%s is %s", p.bold(word(l.Address)), p.state(l.State))
	}
	drawBlockers(p, r.Blockers)
}

// drawBlockers writes what keeps a released address from cooling.
func drawBlockers(p *page, blockers []api.Blocker) {
	if len(blockers) == 0 {
		return
	}
	p.heading("What keeps it")
	rows := make([][]string, len(blockers))
	for i, b := range blockers {
		rows[i] = []string{p.warn(word(b.Kind)), sentence(b.Detail)}
	}
	p.table(columns("BLOCKER", "DETAIL"), rows)
}
