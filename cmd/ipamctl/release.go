package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/holding"
	"github.com/ipamd/ipamd/internal/term"
)

// A releasing is what one call of release asks.
type releasing struct {
	req       api.ReleaseRequest
	sandboxes []string
	wait      time.Duration
	force     bool
	reason    string
}

// A releasedList is the answer about several leases.
type releasedList struct {
	Leases []*api.LeaseReply `json:"leases"`
}

func releaseCommand(c *ctl) *cobra.Command {
	var r releasing
	cmd := &cobra.Command{
		Use:   "release LEASE...",
		Short: "Release leases",
		Long: `Records that the owner is done with the address. The address becomes reusable
only after the removal of the workload is confirmed, by the runtime and by
the kernel, and after the cooldown. What still stands in the way is listed.

Without --wait the code is 0 as soon as the release is recorded. With --wait
the code is 5 when the confirmation did not come in time; the release stays
recorded. A lease that is gone already is released already. -q prints the
lease ids.

Several leases are released one after the other; one that is refused does not
keep the next. --sandbox, which may be repeated, releases all leases of a
sandbox. With several, or --sandbox, -o json is a list, "leases".

A removal that can never be confirmed, because the runtime that had the
containers is lost, is ended with --force: the address is quarantined, and
cools once no witness has seen it for long enough. Only root may.`,
		Example: `  ipamctl release 0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d
  ipamctl release 0a1b2c3d 7f3a9d41
  ipamctl release --sandbox web-1 --wait 10s
  ipamctl release 0a1b2c3d --force --reason "its containerd is lost"`,
		ValidArgsFunction: c.offer(asHeld),
		Args: func(cmd *cobra.Command, args []string) error {
			if (len(args) > 0) == (len(r.sandboxes) > 0) {
				return errors.New("release wants lease ids, or --sandbox")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.release(cmd, args, r) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&r.sandboxes, "sandbox", nil, "all leases of this `sandbox`; may be given several times")
	f.StringVar(&r.req.UID, "uid", "", "refuse unless the lease is this `uid`'s")
	f.Int64Var(&r.req.IfRevision, "if-revision", 0, "refuse if the lease changed since this `revision`")
	f.BoolVar(&r.force, "force", false, "quarantine the address when the removal is not confirmed")
	f.StringVar(&r.reason, "reason", "", "`why` it is forced, for the history")
	f.DurationVar(&r.wait, "wait", 0, "wait this `duration` for each confirmation, on top of --timeout; at most 1m")
	c.complete(cmd, "sandbox", c.offer(asSandbox))
	return cmd
}

func (c *ctl) release(cmd *cobra.Command, args []string, r releasing) error {
	switch {
	case r.force != (strings.TrimSpace(r.reason) != ""):
		return usageError{message: "release wants --force and --reason together", hint: "the history keeps the reason"}
	case r.wait < 0:
		return usageError{message: "--wait must not be negative"}
	case r.req.IfRevision != 0 && len(args) != 1:
		return usageError{message: "--if-revision is for one lease"}
	case r.wait > 0:
		r.req.Wait = api.Lasting(r.wait)
	}
	ctx, cancel, ipamd := c.call(cmd, 0)
	defer cancel()
	ids, err := r.ids(ctx, c, ipamd, args)
	if err != nil {
		return err
	}
	if ctx.Err() == nil { // each of them is waited for
		ctx, cancel = context.WithTimeout(cmd.Context(), c.timeout+r.wait*time.Duration(len(ids)))
		defer cancel()
	}
	var (
		replies []*api.LeaseReply
		waits   []string // for their confirmation
		waiting string   // the last of these leases
		refused error
		failed  int
	)
	for _, id := range ids {
		reply, err := r.one(ctx, ipamd, id)
		if err != nil {
			if refused == nil {
				refused, c.about.lease = err, id
			}
			failed++
			continue
		}
		replies = append(replies, reply)
		if reply.Lease.State == api.Releasing {
			waits = append(waits, term.Word(reply.Lease.Address))
			waiting = reply.Lease.ID
		}
	}
	var v any = releasedList{replies}
	if len(args) == 1 && len(replies) == 1 {
		v = replies[0]
	}
	if len(replies) > 0 {
		if err := c.answer(v, released(replies), func(p *page) {
			for _, reply := range replies {
				p.drawRelease(reply)
			}
		}); err != nil {
			return err
		}
	}
	switch {
	case failed > 0 && len(ids) > 1:
		return fmt.Errorf("%d of %s not released, the first: %w", failed, term.Plural(len(ids), "lease"), refused)
	case refused != nil:
		return refused
	case r.wait > 0 && len(waits) > 0:
		return unconfirmed{
			message: fmt.Sprintf("release %s: not confirmed within %s", strings.Join(waits, ", "), r.wait),
			hint:    "the release is recorded and goes on; how far it is: ipamctl status, ipamctl show " + term.Word(waiting),
		}
	}
	return nil
}

// ids are the leases that are to be released.
func (r releasing) ids(ctx context.Context, c *ctl, ipamd *client.Client, args []string) (ids []string, err error) {
	for _, arg := range args {
		id, err := c.leaseNamed(ctx, ipamd, arg, "to release all of its leases: ipamctl release --sandbox ")
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	for _, sandbox := range r.sandboxes {
		list, err := ipamd.Leases(ctx, client.LeaseFilter{Sandbox: sandbox})
		if err != nil {
			return nil, err
		}
		before := len(ids)
		for _, l := range list.Leases {
			if holding.Open(l.State) || l.State == api.Releasing {
				ids = append(ids, l.ID)
			}
		}
		if len(ids) == before {
			return nil, noLeaseOf("release", sandbox, list)
		}
	}
	return ids, nil
}

// one releases one lease, and by force what is not confirmed at once.
func (r releasing) one(ctx context.Context, ipamd *client.Client, id string) (*api.LeaseReply, error) {
	reply, err := ipamd.Release(ctx, id, r.req)
	if err != nil || !r.force || reply.Lease.State != api.Releasing {
		return reply, err
	}
	return ipamd.ForceRelease(ctx, id, api.ForceReleaseRequest{Reason: r.reason})
}

func released(replies []*api.LeaseReply) (ids []string) {
	for _, r := range replies {
		ids = append(ids, r.Lease.ID)
	}
	return ids
}

func (p *page) drawRelease(r *api.LeaseReply) {
	l := &r.Lease
	is := map[api.State]string{
		api.Cooling:     ": the removal is confirmed, it waits out its cooldown",
		api.Quarantined: ": it cools once no witness has seen it for long enough",
	}
	p.Line("%s is %s%s", p.Bold(term.Word(l.Address)), p.state(l.State), is[l.State])
	p.drawBlockers(r.Blockers)
}

// drawBlockers writes what keeps a released address from cooling.
func (p *page) drawBlockers(blockers []api.Blocker) {
	part(p, "What keeps it", term.Columns("BLOCKER", "DETAIL"), blockers, func(b api.Blocker) []string {
		return []string{p.Warn(term.Word(b.Kind)), term.Sentence(b.Detail)}
	})
	if len(blockers) > 0 {
		p.Line("It cools once that is gone; what to remove: ipamctl explain releasing_stuck")
	}
}
