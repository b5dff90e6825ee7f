package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/reconciler"
)

// gate tells the allocator whether addresses may be given.
func (p *program) gate() error {
	if err := p.book.Identity(); err != nil {
		return err
	}
	if !p.counted.Load() {
		return fmt.Errorf("%w: the first census is not done", allocator.ErrNotReady)
	}
	if err := p.bridge.Ready(); err != nil {
		return fmt.Errorf("%w: %s", allocator.ErrBridge, p.bridge.Status().Reason)
	}
	return nil
}

// notReady lists every reason why addresses cannot be given now.
func (p *program) notReady() []string {
	var why []string
	if err := p.gate(); err != nil {
		why = append(why, err.Error())
	}
	for _, s := range p.board.Silent() {
		if s.Witness.Kernel() || p.cfg.Allocation.Require == "all" {
			why = append(why, fmt.Sprintf("the %s witness cannot answer: %s", s.Witness, s.Reason))
		}
	}
	if err := p.book.Info().ReadOnly; err != nil {
		why = append(why, err.Error())
	}
	return why
}

func (p *program) bridgeStatus() api.BridgeStatus {
	s := p.bridge.Status()
	return api.BridgeStatus{Name: s.Name, Ready: s.Ready, Reason: s.Reason, Managed: s.Managed, Ports: s.Ports, MAC: s.MAC, MTU: s.MTU}
}

// releasingMax is how long a release may stay unconfirmed before doctor tells.
const releasingMax = time.Hour

func (p *program) doctor(ctx context.Context) []api.Finding {
	info := p.book.Info()
	leases, _ := p.book.Leases() // book first, census second
	usage, _ := p.book.Usage()
	// A failing Settle shows as silent witnesses in the census.
	_ = p.bridge.Settle(ctx)
	found := reconciler.Diagnose(reconciler.World{
		Leases: leases, Usage: usage, Unreadable: info.Unreadable, ReadOnly: info.ReadOnly, Unready: p.bridge.Ready(), Identity: p.book.Identity(),
		Census: p.board.Census(), Place: p.book.Place, Strangers: allocator.Strangers, Runtime: p.runtime != nil,
		QuarantineShare: p.cfg.Allocation.QuarantineShare, ReleasingMax: releasingMax, Now: netdb.Now(),
	})
	out := make([]api.Finding, len(found))
	for i, f := range found {
		out[i] = api.Finding{Kind: f.Kind, LeaseID: f.LeaseID, Detail: f.Detail, Since: f.Since, Mend: f.Mend}
		if f.Addr.IsValid() {
			out[i].Address = f.Addr.String()
		}
	}
	for _, pool := range p.unnamed {
		out = append(out, api.Finding{Kind: "pool_not_configured", Mend: mendUnnamed,
			Detail: fmt.Sprintf("pool %s, %s, is in the book and not in the configuration; it is kept as it was", pool.Name, pool.Prefix)})
	}
	return out
}
