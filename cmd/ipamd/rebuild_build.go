package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/workload"
)

// build makes a book at a path, from the witnesses and what was salvaged, and
// closes it. A preview makes and mends no bridge.
func (r *rebuild) build(ctx context.Context, at string, old netdb.Salvaged) (report *rebuilt, err error) {
	cfg := r.cfg
	cfg.Book.Path = at
	cfg.Bridge.Manage = cfg.Bridge.Manage && !r.preview
	cfg.Allocation.QuarantineShare = 1 // what is seen now is set aside, however much it is
	if cfg.Book.RunnerUID == "" {
		cfg.Book.RunnerUID = old.RunnerUID
	}
	p := newProgram(cfg, r.log, thisBuild())
	p.netns = r.netns
	defer func() {
		if closed := p.close(); closed != nil {
			report, err = nil, errors.Join(err, closed)
		}
	}()
	if err := p.inOrder(ctx, p.openBook, p.openBridge, p.openRuntime, p.openWatchdog); err != nil {
		return nil, err
	}
	if err := sameRunner(old, p.book.Info()); err != nil {
		return nil, err
	}
	back := &restorer{Book: p.book, old: old, leases: workload.NewLeases(old.Leases), runtime: p.runtime != nil, held: make(map[netip.Addr]bool)}
	if err := p.reconcileBy(back); err != nil {
		return nil, err
	}
	if err := r.fill(ctx, p, back); err != nil {
		return nil, err
	}
	found, err := p.book.Check(ctx)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		return nil, fmt.Errorf("the new book is not whole: %s", found[0])
	}
	return back.report(), nil
}

// sameRunner refuses the book of another runner or machine: what it kept back
// says nothing about this one.
func sameRunner(old netdb.Salvaged, now netdb.Info) error {
	switch {
	case old.RunnerUID != "" && old.RunnerUID != now.RunnerUID:
		return fmt.Errorf("%w: it is runner %q's, this is runner %q; if that is meant, move it away by hand", netdb.ErrIdentity, old.RunnerUID, now.RunnerUID)
	case old.MachineID != "" && now.MachineID != "" && old.MachineID != now.MachineID:
		return fmt.Errorf("%w: it was made on machine %s, this is machine %s; if that is meant, move it away by hand",
			netdb.ErrIdentity, old.MachineID, now.MachineID)
	}
	return nil
}

// fill takes a whole census and makes the first pass, as a daemon does; but
// half a census is none here.
func (r *rebuild) fill(ctx context.Context, p *program, back *restorer) error {
	failed := p.refresh(ctx)
	back.census, back.running = p.board.Census(), p.board.By(census.Runtime)
	back.meet(p.book.Runtime())
	if err := unanswered(failed, back.census.Silent); err != nil {
		return err
	}
	if err := back.before(ctx); err != nil {
		return err
	}
	report, err := p.reconciler.Pass(ctx, reconciler.Mode{})
	if err != nil {
		return err
	}
	if err := unanswered(nil, report.Silent); err != nil {
		return err
	}
	back.passed(report)
	return errors.Join(back.after(ctx), back.leaveRuntime(ctx))
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
