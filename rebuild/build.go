package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/salvage"
	"github.com/ipamd/ipamd/workload"
)

// Build makes a book at a path, from the witnesses and what was salvaged, and
// closes it. A preview neither makes nor repairs a bridge.
func (r *Rebuild) Build(ctx context.Context, at string, old salvage.Found) (report *Report, err error) {
	cfg := r.Config
	cfg.Book.Path = at
	cfg.Book.Synchronous = "normal" // a book that is half made is thrown away, and Seal makes a whole one durable
	cfg.Bridge.Manage = cfg.Bridge.Manage && !r.Preview
	cfg.Allocation.QuarantineShare = 1 // what is seen now is quarantined, however much it is
	if cfg.Book.RunnerUID == "" {
		cfg.Book.RunnerUID = old.RunnerUID
	}
	leftOut, err := r.begin(ctx, cfg, old)
	if err != nil {
		return nil, err
	}
	p, err := r.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := p.Close(); closed != nil {
			report, err = nil, errors.Join(err, closed)
		}
	}()
	back := &restorer{Book: p.Book, plugOf: p.PlugOf, verb: cmp.Or(r.verb, "rebuild"), old: old, leases: workload.NewLeases(old.Leases), runtime: p.Runtime, tombstone: cfg.BookOptions().Tombstone, rest: cfg.Allocation.Policy().Cooldown,
		held: make(map[netip.Addr]bool)}
	for _, p := range old.Pools {
		back.rest = max(back.rest, p.Cooldown)
	}
	for _, why := range leftOut {
		back.explain("of the old book is left out: %v", why)
	}
	if err := r.fill(ctx, p, back); err != nil {
		return nil, err
	}
	found, err := p.Book.Check(ctx)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		return nil, fmt.Errorf("the new book is not whole: %s", found[0])
	}
	report = back.report()
	if r.done != nil {
		r.done(back, report)
	}
	return report, nil
}

// begin makes the new book with the pools of the old one, before the configuration is
// read: one that has not changed undoes no change of a pool that came later, nor the
// removal of one.
func (r *Rebuild) begin(ctx context.Context, cfg config.Config, old salvage.Found) (leftOut []error, err error) {
	b, err := netdb.Open(cfg.Book.Path, cfg.BookOptions())
	if err != nil {
		return nil, err
	}
	if err = sameRunner(old, b.Info()); err == nil {
		who := ipam.Who{Actor: ipam.ByOperator, Peer: "ipamd " + cmp.Or(r.verb, "rebuild")}
		leftOut, err = b.KeepPools(ctx, who, old.Pools, old.Names)
	}
	return leftOut, errors.Join(err, b.Close())
}

// sameRunner refuses the book of another runner or machine: what it
// withheld says nothing about this one.
func sameRunner(old salvage.Found, now netdb.Info) error {
	switch {
	case old.RunnerUID != "" && old.RunnerUID != now.RunnerUID:
		return fmt.Errorf("%w: it is runner %q's, this is runner %q; if that is meant, move it away by hand", netdb.ErrIdentity, old.RunnerUID, now.RunnerUID)
	case old.MachineID != "" && now.MachineID != "" && old.MachineID != now.MachineID:
		return fmt.Errorf("%w: it was made on machine %s, this is machine %s; if that is meant, move it away by hand",
			netdb.ErrIdentity, old.MachineID, now.MachineID)
	}
	return nil
}

// fill has the bridges of all pools looked after, takes a whole census and makes the first
// pass, as a daemon does; but half a census is none here.
func (r *Rebuild) fill(ctx context.Context, p *Parts, back *restorer) error {
	for _, step := range []func(context.Context) error{back.checkSubnets, p.Follow} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	failed := p.Refresh(ctx)
	back.census, back.running = p.Board.Census(), p.Board.By(census.Runtime)
	back.compareRuntime(p.Book.Runtime())
	if err := unanswered(failed, back.census.Silent); err != nil {
		return err
	}
	if r.passOver != nil {
		r.passOver(back.gone)
		back.leases = workload.NewLeases(back.old.Leases)
	}
	for _, step := range []func(context.Context) error{back.cancel, back.before} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	report, err := p.Pass(ctx, back)
	if err != nil {
		return err
	}
	if err := unanswered(nil, report.Silent); err != nil {
		return err
	}
	back.passed(report)
	return errors.Join(back.after(ctx), back.nameLinks(ctx), back.recordRuntime(ctx))
}

// unanswered refuses half a census. A reading that failed without a witness
// falling silent is half of one, too.
func unanswered(failed error, silent []census.Silence) error {
	var why []string
	for _, s := range silent {
		why = append(why, fmt.Sprintf("the %s witness cannot answer: %s", s.Witness, s.Reason))
	}
	if len(why) == 0 && failed != nil {
		why = append(why, failed.Error())
	}
	if len(why) == 0 {
		return nil
	}
	return errors.New(strings.Join(why, "; ") + "; a book from half a census would give away what it does not show, so the old one is as it was")
}
