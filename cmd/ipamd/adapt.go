package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/metrics"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/watchdog"
)

// releaser speaks the socket's words for the watchdog.
type releaser struct{ *watchdog.Watchdog }

func (r releaser) Release(ctx context.Context, who netdb.Who, id, uid string, ifRev int64) (*netdb.Lease, []api.Blocker, error) {
	l, blockers, err := r.Watchdog.Release(ctx, who, id, uid, ifRev)
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

// boundBook reports binds to the watchdog, returns a lease of before a rebuild to the
// owner that binds it, and takes in the kernel's news before
// an operator's verb reads the board.
type boundBook struct {
	*netdb.Book
	runtime   bool // there is one, which containers can be in
	watchdog  *watchdog.Watchdog
	settle    func(ctx context.Context, about ...netip.Addr) error
	allocator *allocator.Allocator
	bridge    *bridge.Bridge
}

// Adopt refuses on an operator's word what Bind does.
func (b boundBook) Adopt(ctx context.Context, who netdb.Who, a netdb.Adoption) (*netdb.Lease, error) {
	if a.Netns != "" {
		if err := b.bridge.CheckNetns(ctx, a.Netns); err != nil {
			return nil, &netdb.FieldError{Field: "netns", Reason: err.Error()}
		}
	}
	a.Binding = plugged(ctx, b.bridge, a.Binding)
	return b.Book.Adopt(ctx, who, a)
}

func (b boundBook) ClearAt(ctx context.Context, who netdb.Who, id string, rev int64, unseen func() error) (*netdb.Lease, error) {
	var about []netip.Addr
	if l, err := b.Book.Lease(id); err == nil && l != nil {
		about = append(about, l.Addr)
	}
	// What could not be read silences its witness, which unseen asks; what a
	// deadline left unread does not.
	if err := b.settle(ctx, about...); err != nil && ctx.Err() != nil {
		return nil, err
	}
	return b.Book.ClearAt(ctx, who, id, rev, unseen)
}

func (b boundBook) Bind(ctx context.Context, who netdb.Who, id string, ifRev int64, where netdb.Binding) (*netdb.Lease, error) {
	if !b.runtime && len(where.Containers) > 0 {
		return nil, &netdb.FieldError{Field: "containers[0].namespace",
			Reason: `runtime.kind is "none": no witness could ever confirm that the container is gone; name its netns or host_interface`}
	}
	if where.Netns != "" {
		if err := b.bridge.CheckNetns(ctx, where.Netns); err != nil {
			return nil, &netdb.FieldError{Field: "netns", Reason: err.Error()}
		}
	}
	began := time.Now()
	before, _ := b.Book.Lease(id) // an error is Bind's to return
	if former, err := b.Book.Lease(id); err == nil && former.Former() && (ifRev == 0 || ifRev == former.Rev) {
		by := who
		by.Reason = "reclaimed"
		if _, err := b.allocator.Reclaim(ctx, by, id, where); err != nil {
			return nil, err
		}
		ifRev = 0
	}
	l, err := b.Book.Bind(ctx, who, id, ifRev, plugged(ctx, b.bridge, where))
	if err == nil {
		b.watchdog.Bound(before, l, began)
	}
	return l, err
}

func (b boundBook) Cancel(ctx context.Context, who netdb.Who, uid string, attempt int64) ([]*netdb.Lease, error) {
	ended, err := b.Book.Cancel(ctx, who, uid, attempt)
	for _, l := range ended {
		b.watchdog.Ended(l.ID)
	}
	return ended, err
}

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
