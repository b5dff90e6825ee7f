package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/watchdog"
)

// policy is when cooling addresses may be given again.
func (a allocationConfig) policy() netdb.Policy {
	return netdb.Policy{Cooldown: a.Cooldown.Duration, CooldownMin: a.CooldownMin.Duration, Strict: a.Exhausted == "strict"}
}

// releaser speaks the socket's words for the watchdog.
type releaser struct{ *watchdog.Watchdog }

func (r releaser) Release(ctx context.Context, who netdb.Who, id, uid string) (*netdb.Lease, []api.Blocker, error) {
	l, blockers, err := r.Watchdog.Release(ctx, who, id, uid)
	return l, blockersOf(blockers), err
}

func (r releaser) Blockers(l *netdb.Lease) []api.Blocker { return blockersOf(r.Watchdog.Blockers(l)) }

func blockersOf(blockers []watchdog.Blocker) []api.Blocker {
	out := make([]api.Blocker, len(blockers))
	for i, b := range blockers {
		out[i] = api.Blocker(b)
	}
	return out
}

// measured counts what the allocator answers.
type measured struct {
	*allocator.Allocator
	metrics *metrics
}

func (m measured) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	began := time.Now()
	result, err := m.Allocator.Allocate(ctx, r)
	m.metrics.allocated(result, err, time.Since(began))
	return result, err
}

// reconcile is refused until the reconciler tells what a pass did.
func (p *program) reconcile(context.Context, bool, bool) (api.Report, error) {
	return api.Report{}, fmt.Errorf("%w: the first pass is not done", allocator.ErrNotReady)
}

func (p *program) lastPass() *api.Report { return nil }
