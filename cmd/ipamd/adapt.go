package main

import (
	"context"
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
	out := make([]api.Blocker, len(blockers))
	for i, b := range blockers {
		out[i] = api.Blocker(b)
	}
	return l, out, err
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
