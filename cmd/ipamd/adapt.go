package main

import (
	"context"
	"errors"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/metrics"
	"github.com/ipamd/ipamd/reconciler"
)

// startTimeout is how long an allocate waits for the first census. That is
// there within a tenth of a second, and later when containerd does not answer.
const startTimeout = 5 * time.Second

// measured counts what the allocator answers.
type measured struct {
	*allocator.Allocator
	metrics *metrics.Metrics
	first   <-chan struct{} // closed when the first census is done
}

func (m measured) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	began := time.Now()
	// A caller that waited on the socket while ipamd restarted is not refused for
	// coming first.
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-m.first:
	case <-timeout.C: // the allocator's error names what is not ready
	case <-ctx.Done():
	}
	result, err := m.Allocator.Allocate(ctx, r)
	if !errors.Is(err, context.Canceled) { // one that its caller gave up is neither given nor refused
		m.metrics.Allocated(result, err, time.Since(began))
	}
	return result, err
}

// reconcile makes a pass and reports it as the socket spells it.
func (p *program) reconcile(ctx context.Context, preview, confirm bool) (api.Report, error) {
	r, err := p.reconciler.Pass(ctx, reconciler.Mode{Preview: preview, Confirm: confirm})
	if err != nil {
		return api.Report{}, err
	}
	return doctor.Report(r), nil
}

func (p *program) lastPass() *api.Report {
	if !p.counted.Load() {
		return nil
	}
	last := p.reconciler.Last()
	if last == nil {
		return nil
	}
	r := doctor.Report(last)
	return &r
}
