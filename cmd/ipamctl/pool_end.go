package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/poolmap"
	"github.com/ipamd/ipamd/internal/term"
)

func poolDrain(c *ctl) *cobra.Command {
	var preview, undo bool
	family := newChoice("", "v4", "v6")
	cmd := &cobra.Command{
		Use:   "drain POOL",
		Short: "Have a pool give nothing, or give again",
		Long: `Has a pool give no address from now on; its leases stay as they are until they
end. --undo has it give again. -q prints the uid.`,
		Example:           "  ipamctl pool drain old\n  ipamctl pool drain old --undo",
		Args:              exactly("the name of a pool"),
		ValidArgsFunction: c.pools,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.onPool(cmd, args[0], family.value, func(ctx context.Context, ipamd *client.Client, pool *api.Pool) (*api.PoolReply, error) {
				ask := api.DrainRequest{UID: pool.UID, Preview: preview}
				if undo {
					return ipamd.UndrainPool(ctx, pool.Name, ask)
				}
				return ipamd.DrainPool(ctx, pool.Name, ask)
			})
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "have it give again")
	cmd.Flags().BoolVar(&preview, "preview", false, "show what would become of each lease, and do nothing")
	c.familyFlag(cmd, &family)
	return cmd
}

// removeAgain is how often a pool that drains is asked whether it can go.
const removeAgain = time.Second

func poolRemove(c *ctl) *cobra.Command {
	var confirm bool
	var wait time.Duration
	var how client.Removal
	family, mode := newChoice("", "v4", "v6"), newChoice(string(api.RemoveEmpty), string(api.RemoveDrain), string(api.RemoveForce))
	cmd := &cobra.Command{
		Use:     "rm POOL",
		Aliases: []string{"remove"},
		Short:   "Remove a pool",
		Long: `Removes a pool without leases. With --mode drain it gives nothing
more, and goes when the verb is asked again after its last lease has ended, or
within --wait. --mode force ends its leases and withholds their addresses: a
sandbox that lives with one loses it. That wants --reason and --confirm; without
the second the answer is what would become of each lease. The history stays in
each case. -q prints the uid.`,
		Example:           "  ipamctl pool rm old\n  ipamctl pool rm old --mode drain --wait 10m\n  ipamctl pool rm old --mode force --preview",
		Args:              exactly("the name of a pool"),
		ValidArgsFunction: c.pools,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 || wait > 0 && mode.value != string(api.RemoveDrain) {
				return usageError{message: "--wait is for --mode drain, and not negative", hint: "see ipamctl pool rm --help"}
			}
			if confirm && strings.TrimSpace(how.Reason) == "" {
				return usageError{message: "--confirm wants --reason", hint: `--reason "why": the history keeps it for the next person`}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			how.Mode = api.RemoveMode(mode.value)
			asks := how.Mode == api.RemoveForce && !confirm && !how.Preview
			how.Preview = how.Preview || asks
			ctx, cancel, ipamd := c.call(cmd, wait)
			defer cancel()
			c.about.pool = args[0]
			pool, err := poolNamed(ctx, ipamd, args[0], family.value)
			if err != nil {
				return err
			}
			how.UID = pool.UID
			reply, err := removeWithin(ctx, ipamd, pool.Name, how, wait)
			if err != nil {
				return err
			}
			if err := c.answerPools(reply, reply); err != nil {
				return err
			}
			switch {
			case asks:
				return usageError{message: "nothing was done: --mode force wants --confirm",
					hint: "without harm to a sandbox: ipamctl pool rm " + term.Word(args[0]) + " --mode drain"}
			case wait > 0 && reply.Change == api.PoolDrain:
				return unconfirmed{message: fmt.Sprintf("remove pool %s: it has leases after %s", term.Word(args[0]), wait),
					hint: "it drains; which they are: ipamctl leases --pool " + term.Word(args[0])}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Var(&mode, "mode", "`what` becomes of its leases: "+mode.want())
	f.DurationVar(&wait, "wait", 0, "wait this `duration` for the leases of a pool that drains, on top of --timeout")
	f.StringVar(&how.Reason, "reason", "", "`why`, for the history")
	f.BoolVar(&how.Preview, "preview", false, "show what would become of each lease, and do nothing")
	f.BoolVar(&confirm, "confirm", false, "end the leases of a pool that is removed by force")
	c.familyFlag(cmd, &family)
	c.complete(cmd, "mode", mode.complete)
	return cmd
}

// removeWithin removes a pool, and asks again while it drains and there is time.
func removeWithin(ctx context.Context, ipamd *client.Client, name string, how client.Removal, wait time.Duration) (*api.PoolReply, error) {
	over := time.After(wait)
	for {
		reply, err := ipamd.RemovePool(ctx, name, how)
		if err != nil || how.Preview || reply.Change != api.PoolDrain || wait == 0 {
			return reply, err
		}
		select {
		case <-over:
			return reply, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(removeAgain):
		}
	}
}

// onPool is a verb on the pool that a person names.
func (c *ctl) onPool(cmd *cobra.Command, name, family string, do func(context.Context, *client.Client, *api.Pool) (*api.PoolReply, error)) error {
	c.about.pool = name
	ctx, cancel, ipamd := c.call(cmd, 0)
	defer cancel()
	pool, err := poolNamed(ctx, ipamd, name, family)
	if err != nil {
		return err
	}
	reply, err := do(ctx, ipamd, pool)
	if err != nil {
		return err
	}
	return c.answerPools(reply, reply)
}

// answerPools writes what was made of pools; v is that for a program.
func (c *ctl) answerPools(v any, replies ...*api.PoolReply) error {
	var uids []string
	for _, r := range replies {
		uids = append(uids, r.Pool.UID)
	}
	return c.answer(v, uids, func(p *page) {
		for i, r := range replies {
			if i > 0 {
				p.Line("")
			}
			p.drawChange(r)
		}
	})
}

// drawChange writes what a change made of a pool and of its leases.
func (p *page) drawChange(r *api.PoolReply) {
	done := map[api.PoolChange]string{
		api.PoolCreate: "is new", api.PoolUpdate: "is changed", api.PoolDrain: "drains", api.PoolUndrain: "gives again",
		api.PoolRemove: "is removed", api.PoolSame: "is as described already",
	}[r.Change]
	if done == "" {
		done = "is changed: " + term.Word(string(r.Change))
	}
	if r.Preview && r.Change != api.PoolSame {
		p.Line("a preview, nothing was done:")
		done = map[api.PoolChange]string{
			api.PoolCreate: "would be made", api.PoolUpdate: "would be changed", api.PoolDrain: "would drain", api.PoolUndrain: "would give again",
			api.PoolRemove: "would be removed",
		}[r.Change]
	}
	p.Line("pool %s, %s, generation %d, %s", p.Bold(term.Word(r.Pool.Name)), term.Word(r.Pool.Prefix), r.Pool.Generation, done)
	left := ""
	if !r.Preview && r.Pool.State == api.PoolActive {
		left = "; " + poolmap.Room(&p.Page, r.Pool)
	}
	p.Line("  %s affected, %d unchanged%s", term.Plural(r.Total, "lease"), r.Unchanged, left)
	gives, takes := "it drained, and gives again", "are this pool's now"
	if r.Preview {
		gives, takes = "it drains, and would give again", "would be this pool's"
	}
	if r.GivesAgain {
		p.Line("  %s; to have it drain: ipamctl pool drain %s", gives, term.Word(r.Pool.Name))
	}
	if r.GatewayRests != "" {
		verb := "cools"
		if r.Preview {
			verb = "would cool"
		}
		p.Line("  %s was the gateway, and %s before a sandbox gets it", term.Word(r.GatewayRests), verb)
	}
	if r.TakenOver > 0 {
		p.Line("  %s of removed pools %s, and not given yet", term.Plural(r.TakenOver, "withheld address"), takes)
	}
	if r.SlotsEnded > 0 {
		verb := "are taken down"
		if r.Preview {
			verb = "would be taken down"
		}
		p.Line("  %s %s", term.Plural(r.SlotsEnded, "warm slot"), verb)
	}
	if !r.Preview && r.Pool.State == api.PoolActive && r.Change != api.PoolRemove {
		p.drawNotReady([]api.Pool{r.Pool}) // the gateway of a new prefix is not on the bridge yet
	}
	if len(r.Effects) == 0 {
		return
	}
	cols := term.Columns("ADDRESS", "STATE", "SANDBOX", "BECOMES", "LEASE", "NOTE")
	cols[2].Yield = true
	leases := make([]api.Lease, len(r.Effects))
	for i, e := range r.Effects {
		leases[i].ID = e.LeaseID
	}
	ids := leaseIDs(leases)
	if !p.wide {
		ids = shortIDs(leases)
	}
	rows := make([][]string, len(r.Effects))
	for i, e := range r.Effects {
		rows[i] = []string{place(e.Address, e.PrefixLength), p.state(e.State), term.Maybe(e.Sandbox), p.effect(e.Effect), term.Word(ids[i]), term.Sentence(e.Note)}
		if !p.wide {
			rows[i] = rows[i][:5]
		}
	}
	if !p.wide {
		cols = cols[:5]
	}
	p.Table(cols, rows)
	if more := r.Total - len(r.Effects); more > 0 {
		p.Line("  and %s", term.Plural(more, "more lease"))
	}
	var said []string
	for _, e := range []struct {
		effect api.Effect
		means  string
	}{
		{api.EffectOutside, "outside: it stays valid, and its address is not given again"},
		{api.EffectInside, "inside: its address can be given again once it has ended"},
		{api.EffectEnds, "ends: no sandbox holds the address; its row goes, its cooldown goes on"},
		{api.EffectWithheld, "withheld: no pool gives the address while it may be in use"},
	} {
		for _, got := range r.Effects {
			if got.Effect == e.effect {
				said = append(said, e.means)
				break
			}
		}
	}
	for _, line := range said {
		p.Line("%s", p.Dim(line))
	}
}

func (p *page) effect(e api.Effect) string {
	word := term.Word(string(e))
	switch e {
	case api.EffectWithheld:
		return p.Bad(word)
	case api.EffectOutside:
		return p.Warn(word)
	}
	return word
}
